"""Claims about small piecewise-linear networks, decided in exact rational arithmetic."""
