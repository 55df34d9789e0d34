"""Searches over circuits."""
