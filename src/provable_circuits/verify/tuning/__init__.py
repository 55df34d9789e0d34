"""Tuning: the groups of a verifier's configuration, one file for each room that they are about."""
