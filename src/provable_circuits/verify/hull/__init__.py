"""Tight bounds where many ReLUs of one layer are open: their hulls over the box of inputs."""
