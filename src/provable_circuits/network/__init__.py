"""The model as a graph, its components, its circuits, and what they compute."""
