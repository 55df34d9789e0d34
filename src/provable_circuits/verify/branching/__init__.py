"""Branching: subdomains, ReLU splits, input splits, and linear programs of leaves."""
