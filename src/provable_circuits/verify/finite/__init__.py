"""Claims over finite domains: every input is decided by an enclosure of its own."""
