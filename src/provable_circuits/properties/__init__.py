"""Properties: VNN-LIB files and their cases, plain properties, and outside verifiers."""
