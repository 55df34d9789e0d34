"""Reuse: what is remembered between the questions of one verifier."""
