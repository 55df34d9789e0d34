"""The command line of the checker: ``python -m provable_circuits.proof.checker DIR``.

The exit code is 0 where every statement holds, and 1 where one does not or where the certificate
cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from .arithmetic import RefusedError
from .check import check_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a certificate and write a line for each of its statements."""
    parser = argparse.ArgumentParser(
        prog="checker", description="Check every statement of a certificate."
    )
    parser.add_argument("folder", metavar="DIR", help="the folder of the certificate")
    parser.add_argument("--exact", action="store_true", help="compute in rational numbers")
    parser.add_argument("--json", action="store_true", help="write JSON")
    asked = parser.parse_args(arguments)
    try:
        found, refused = check_folder(asked.folder, asked.exact), ""
    except RefusedError as error:
        found, refused = [], str(error)
    holds = bool(found) and all(finding.holds for finding in found)
    if asked.json:
        rows = [asdict(finding) for finding in found]
        text = json.dumps(
            {"holds": holds, "statements": rows, "refused": refused or None}, indent=1
        )
    else:
        width = max((len(finding.statement) for finding in found), default=0)
        lines = [
            f"{'holds' if f.holds else 'DOES NOT HOLD':13}  {f.statement:{width}}  {f.reason}"
            for f in found
        ]
        text = "\n".join(lines) or f"REFUSED  {refused or 'The certificate states nothing.'}"
    sys.stdout.write(text + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
