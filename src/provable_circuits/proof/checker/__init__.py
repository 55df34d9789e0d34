"""The checker: certificates checked by NumPy, safetensors and the standard library alone.

Kernel      what is trusted of the mathematics: ``arithmetic`` (numbers with their errors),
            ``operations``, ``problem`` (what is to be shown), ``rules`` (what may be concluded),
            ``covering`` (how many elements it takes to hit some sets)
Readers     ``protobuf`` and ``network``: the ONNX file
Format      ``data`` (strict JSON), ``certificate`` (files and digests), ``claim``, ``tree`` (a
            proof followed rule by rule), ``check`` (statement by statement), ``machine`` (whether
            linear algebra forms plain products here)
"""
