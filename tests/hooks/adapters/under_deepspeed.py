"""The example as it is, but for an operation that DeepSpeed would compile for a minute first."""

import importlib
import runpy
from pathlib import Path
from typing import Any, Final

EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "deepspeed_engine.py"


def main() -> None:
    operations: Any = importlib.import_module("deepspeed.ops")
    operations.__compatible_ops__["deepspeed_shm_comm"] = False
    runpy.run_path(str(EXAMPLE), run_name="__main__")


if __name__ == "__main__":
    main()
