"""The example as it is, but for an operation that DeepSpeed would compile for a minute first."""

import importlib
import runpy
import sys
from pathlib import Path
from typing import Any, Final

EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "deepspeed_engine.py"


def load_example() -> Any:
    """As a module."""
    operations: Any = importlib.import_module("deepspeed.ops")
    operations.__compatible_ops__["deepspeed_shm_comm"] = False
    sys.path.insert(0, str(EXAMPLE.parent))
    return importlib.import_module(EXAMPLE.stem)


def main() -> None:
    load_example()
    runpy.run_path(str(EXAMPLE), run_name="__main__")


if __name__ == "__main__":
    main()
