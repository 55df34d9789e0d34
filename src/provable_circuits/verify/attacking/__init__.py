"""Attacking: PGD, candidate points, and the replay of what seems to be a witness."""
