"""One question, one verdict."""
