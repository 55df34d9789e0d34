"""Encoding: network, circuit and patch source as one graph, built by sharing."""
