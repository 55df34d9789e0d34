"""What the benchmarks of the verifier share: settings, the timed search, tables, a peer."""
