"""Predicates: who answers the questions of a search, and where."""
