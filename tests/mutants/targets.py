"""Where faults are planted, and the tests that look for them: the quick and direct ones first.

The oracle of the enclosures comes last, with a part of its sequences.
"""

from __future__ import annotations

ENCLOSURES = "tests/enclosures/test_enclosures.py"
ORACLE = (
    f"{ENCLOSURES}::test_what_was_once_proved_falsely",
    *(f"{ENCLOSURES}::test_sequences_of_large_networks[{seed}]" for seed in range(4)),
    *(f"{ENCLOSURES}::test_sequences[{group}]" for group in range(3)),
)

TARGETS: dict[str, tuple[str, ...]] = {
    "rounding.py": (
        "tests/test_rounding.py",
        "tests/verify/test_inconsistency.py",
        "tests/network/test_ops.py",
        "tests/network/test_ops_linear.py",
        "tests/network/test_ops_intervals.py",
    ),
    "verify/bounding/crown.py": (
        "tests/verify/bounding/test_crown.py",
        "tests/verify/bounding/test_crown_rounding.py",
    ),
    "verify/bounding/differential.py": (
        "tests/verify/bounding/test_differential.py",
        "tests/verify/bounding/test_differential_by_hand.py",
    ),
    "verify/encoding/encoder.py": ("tests/verify/encoding/test_encoder.py",),
    "verify/encoding/query.py": ("tests/verify/encoding/test_encoder.py",),
    "verify/encoding/circuit_tensor.py": (
        "tests/verify/encoding/test_circuit_tensor.py",
        "tests/verify/encoding/test_encoder.py",
    ),
    **{
        f"proof/checker/{name}.py": tuple(f"tests/proof/test_{test}.py" for test in tests)
        for name, tests in {
            "arithmetic": ("arithmetic", "operations", "rules"),
            "operations": ("operations", "reader", "rules_by_hand", "rules"),
            "problem": ("problem", "rules_by_hand", "operations", "rules"),
            "rules": ("rules_by_hand", "arithmetic", "operations", "problem", "tree", "rules"),
            "tree": ("tree",),
            "covering": ("covering",),
            "protobuf": ("reader",),
            "network": ("reader",),
        }.items()
    },
}
"""Files below the package, and their own tests."""


def judges_of(file: str, oracle: bool) -> tuple[str, ...]:
    """The tests that faults of a file are judged by; the checker has nothing of the oracle's."""
    checker = file.startswith("proof/")
    return (*TARGETS[file], *(ORACLE if oracle and not checker else ()))
