"""Prints every figure beside its budget.

python -m tests.house.budgets            # exits with 1 if one is over its budget
python -m tests.house.budgets --write    # lowers the table to figures that are better
"""

import argparse
import sys

from tests.house.budgets.measuring import measured
from tests.house.budgets.table import budgets, lower


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="lower the table")
    options = parser.parse_args()
    found = measured()
    refusals: list[str] = []
    for budget in budgets():
        figure = found[budget.name]
        line = f"{budget.what}: {figure:g} (table {budget.today:g}, to reach {budget.target:g})"
        sys.stdout.write(f"{line}\n")
        if not budget.holds(figure):
            refusals.append(budget.refusal(figure))
    if options.write:
        lower(found)
    sys.stdout.write("".join(f"over: {refusal}\n" for refusal in refusals))
    sys.exit(1 if refusals else 0)


if __name__ == "__main__":
    main()
