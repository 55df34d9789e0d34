"""The checker: certificates checked by NumPy, safetensors and the standard library alone."""
