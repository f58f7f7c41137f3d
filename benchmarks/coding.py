"""What bounds the bytes of a value? Layers' stats as frames code them, and as others would.

Nothing is stored or sent: rows of float32 are cut into frames of so many steps, coded and counted.

    python -m benchmarks.coding

Legend: N steps, C columns.
"""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from benchmarks.harness import markdown_table
from numpy.typing import NDArray

from runwatch import zstd
from runwatch.codec import shuffle

NUM_STEPS, NUM_SERIES = 2000, 400
FRAME_STEPS: Final = (1, 50, 250)

Rows = NDArray[np.float32]


def series(step_std: float, noise_std: float) -> Rows:
    """(N, C) log-normal, each column at a level of its own: a random walk, or noise around it."""
    rng = np.random.default_rng(0)
    shape_NC = (NUM_STEPS, NUM_SERIES)
    walk = rng.normal(0, step_std, shape_NC).cumsum(axis=0) + rng.normal(0, 1, NUM_SERIES)
    return np.exp(walk + rng.normal(0, noise_std, shape_NC)).astype(np.float32)


SERIES: Final[Mapping[str, Rows]] = {
    "moves by 3 % a step": series(0.03, 0.0),
    "moves by 0.01 % a step": series(1e-4, 0.0),
    "scatters by 10 %": series(0.0, 0.1),
    "scatters by 30 %": series(0.0, 0.3),
}


def as_it_is(rows_NC: Rows) -> Rows:
    return rows_NC


def differences(rows_NC: Rows) -> Rows:
    """Each number's bits less those of the step before, the sign in the lowest bit; to be counted,
    not to be read as numbers."""
    bits = rows_NC.view(np.uint32)
    steps = bits.copy()
    steps[1:] -= bits[:-1]
    signed = steps.view(np.int32)
    return ((signed << 1) ^ (signed >> 31)).view(np.float32)


def bytes_a_value(
    rows_NC: Rows, coded: Callable[[Rows], Rows], frame_steps: int, level: int = 3
) -> str:
    frames = (rows_NC[start : start + frame_steps] for start in range(0, NUM_STEPS, frame_steps))
    num_bytes = sum(len(zstd.compress(shuffle(coded(frame)), level)) for frame in frames)
    return f"{num_bytes / rows_NC.size:.2f}"


def main() -> None:
    heading = (
        "series",
        *(f"frames of {steps}" for steps in FRAME_STEPS),
        "one block, zstd 19",
        *(f"differences: of {steps}" for steps in FRAME_STEPS),
    )
    table = [
        (
            name,
            *(bytes_a_value(rows, as_it_is, steps) for steps in FRAME_STEPS),
            bytes_a_value(rows, as_it_is, NUM_STEPS, level=19),
            *(bytes_a_value(rows, differences, steps) for steps in FRAME_STEPS),
        )
        for name, rows in SERIES.items()
    ]
    print(markdown_table(heading, table))


if __name__ == "__main__":
    main()
