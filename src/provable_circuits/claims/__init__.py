"""What is claimed of a circuit: over which inputs, under which patching, by which metric."""
