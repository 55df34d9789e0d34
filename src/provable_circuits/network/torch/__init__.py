"""PyTorch: models read into graphs, and graphs written as modules."""
