"""``python -m provable_circuits.cli``."""

from provable_circuits.cli import main

main()
