"""What is measured of every layer at every step."""

from typing import Final

from runwatch.series import GRADIENT_STATS, PARAMETER_STATS, STAT_SPECS

STATS: Final = (*GRADIENT_STATS, *PARAMETER_STATS)
GRAD_NORM: Final = STATS.index("grad_norm")
GRAD_ABSMAX: Final = STATS.index("grad_absmax")
NONFINITE: Final = STATS.index("nonfinite")
ZERO_FRAC: Final = STATS.index("zero_frac")
PARAM_NORM: Final = STATS.index("param_norm")
UPDATE_RATIO: Final = STATS.index("update_ratio")
NUM_SCALED: Final = sum(STAT_SPECS[name].is_scaled for name in STATS)
"""Of the first so many, the loss scale has to be divided out."""
