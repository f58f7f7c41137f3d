"""`python -m runwatch_hooks.doctor`: the trainer's side of `runwatch doctor`, without the service.

Exit status:
    0  nothing is wrong
    1  something is wrong
"""

import argparse
import os
import sys
from collections.abc import Sequence

import msgspec

from runwatch.findings import is_all_right
from runwatch.terminal_text import readable, readable_json
from runwatch_hooks.doctor.examination import examine


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m runwatch_hooks.doctor",
        description="What is installed beside a trainer, and what is set.",
    )
    parser.add_argument("--model", metavar="MODULE:FACTORY", help="makes the model to measure")
    parser.add_argument("--json", action="store_true", help="for machines")
    options = parser.parse_args(arguments)
    findings = examine(os.environ, options.model)
    if options.json:
        sys.stdout.write(readable_json(msgspec.json.encode(findings).decode()) + "\n")
    else:
        for one in findings:
            advice = f" ({one.advice})" if one.advice else ""
            sys.stdout.write(readable(f"{one.verdict:<5}  {one.name}: {one.found}{advice}\n"))
    return 0 if is_all_right(findings) else 1


if __name__ == "__main__":
    sys.exit(main())
