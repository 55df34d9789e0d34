"""Neuron hulls: presolve, hull lines over the input box, layerwise duals and their ascent."""
