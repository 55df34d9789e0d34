"""Results: the circuit, what it rests on, and the run on disk."""
