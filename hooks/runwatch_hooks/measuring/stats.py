"""What is measured of every layer at every step."""

from typing import Final

STATS: Final = (
    "grad_norm",
    "grad_absmax",
    "nonfinite",
    "zero_frac",
    "param_norm",
    "update_ratio",
)
GRAD_NORM, GRAD_ABSMAX, NONFINITE, ZERO_FRAC, PARAM_NORM, UPDATE_RATIO = range(len(STATS))
