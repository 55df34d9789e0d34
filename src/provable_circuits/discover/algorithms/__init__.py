"""Algorithms: one file for each search over circuits."""
