"""ONNX: files read into graphs, and graphs written to files."""
