"""`examples/plain_loop.py`, which also writes a digest of the weights after each step of its
optimizer, a line each."""

import hashlib
import runpy
from pathlib import Path
from typing import Any, Final

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

DIGESTS: Final = "weights.txt"
"""In the folder of the job."""
_PROGRAM: Final = Path(__file__).parents[2] / "examples" / "plain_loop.py"


def digest_of(optimizer: Optimizer) -> str:
    digest = hashlib.sha256()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


def main() -> None:
    with Path(DIGESTS).open("w", buffering=1) as digests:

        def note(optimizer: Optimizer, *_: Any) -> None:
            digests.write(digest_of(optimizer) + "\n")

        register_optimizer_step_post_hook(note)
        runpy.run_path(str(_PROGRAM), run_name="__main__")


if __name__ == "__main__":
    main()
