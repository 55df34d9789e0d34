"""Adapters to verifiers that are not ours."""
