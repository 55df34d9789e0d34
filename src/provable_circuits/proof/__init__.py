"""Proofs as data: certificates, how they are made, and the checker that shares nothing with it."""
