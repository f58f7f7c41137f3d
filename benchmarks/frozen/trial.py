"""Trains one trial of the fault catalogue: python -m benchmarks.frozen.trial NAME FOLDER"""

import sys
from pathlib import Path
from typing import Final

from benchmarks.faults.recording import Trial, record

TRIALS: Final = {
    "healthy": Trial("transformer", 0),
    "alternating": Trial("adversarial", 0),
    "overflow": Trial("half-precision", 0, "one layer overflows float16, for good"),
    "nan": Trial("mlp", 0, "NaN in a batch"),
    "zero-grad": Trial("convolutions", 0, "zero_grad is missing"),
    "resumed": Trial("resumed", 0, "a resume without the optimizer"),
}


def main() -> None:
    name, folder = sys.argv[1:]
    record(TRIALS[name], Path(folder))


if __name__ == "__main__":
    main()
