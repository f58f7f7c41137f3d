"""What can be called in a rule: names, parameters, and the node that each call becomes.

A window holds the finite samples before the current one, newest last; the current sample is never
in it, or a spike would shift its own baseline. `first` alone holds the oldest samples: it says
where the attempt began.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Parameter(Enum):
    """What an argument must be; the value is how an error message says it."""

    NUMBER = "a number"
    TRUTH = "a condition"
    LAYERS = "a number of each layer"
    SHARE = "a constant between 0 and 1"
    SIZE = "a whole constant"
    LAG = "a whole constant or nothing"


class Kind(Enum):
    """Which node a call becomes."""

    WINDOWED = "windowed"
    DIFFERENCE = "difference"
    ELEMENTWISE = "elementwise"
    CHECK = "check"
    CHOICE = "choice"
    ACROSS = "across"


@dataclass(frozen=True, slots=True)
class Function:
    kind: Kind
    parameters: tuple[Parameter, ...]
    smallest: int = 1
    """The smallest window that means anything."""

    @property
    def num_required(self) -> int:
        return sum(parameter is not Parameter.LAG for parameter in self.parameters)


_OVER_NUMBERS = (Parameter.NUMBER, Parameter.SIZE)
_ONE_NUMBER = (Parameter.NUMBER,)

FUNCTIONS: Final[Mapping[str, Function]] = {
    "median": Function(Kind.WINDOWED, _OVER_NUMBERS),
    "mean": Function(Kind.WINDOWED, _OVER_NUMBERS),
    "std": Function(Kind.WINDOWED, _OVER_NUMBERS, smallest=2),
    "min": Function(Kind.WINDOWED, _OVER_NUMBERS),
    "max": Function(Kind.WINDOWED, _OVER_NUMBERS),
    "quantile": Function(Kind.WINDOWED, (Parameter.NUMBER, Parameter.SHARE, Parameter.SIZE)),
    "mad": Function(Kind.WINDOWED, _OVER_NUMBERS, smallest=2),
    "ewma": Function(Kind.WINDOWED, _OVER_NUMBERS),
    "zscore": Function(Kind.WINDOWED, _OVER_NUMBERS, smallest=2),
    "robust_z": Function(Kind.WINDOWED, _OVER_NUMBERS, smallest=2),
    "slope": Function(Kind.WINDOWED, _OVER_NUMBERS, smallest=2),
    "prev": Function(Kind.WINDOWED, (Parameter.NUMBER, Parameter.LAG)),
    "delta": Function(Kind.DIFFERENCE, (Parameter.NUMBER, Parameter.LAG)),
    "last": Function(Kind.WINDOWED, _ONE_NUMBER),
    "age": Function(Kind.WINDOWED, _ONE_NUMBER),
    "count": Function(Kind.WINDOWED, (Parameter.TRUTH, Parameter.SIZE)),
    "first": Function(Kind.WINDOWED, _OVER_NUMBERS),
    "abs": Function(Kind.ELEMENTWISE, _ONE_NUMBER),
    "log10": Function(Kind.ELEMENTWISE, _ONE_NUMBER),
    "isnan": Function(Kind.CHECK, _ONE_NUMBER),
    "isinf": Function(Kind.CHECK, _ONE_NUMBER),
    "isfinite": Function(Kind.CHECK, _ONE_NUMBER),
    "where": Function(Kind.CHOICE, (Parameter.TRUTH, Parameter.NUMBER, Parameter.NUMBER)),
    "max_layers": Function(Kind.ACROSS, (Parameter.LAYERS,)),
    "median_layers": Function(Kind.ACROSS, (Parameter.LAYERS,)),
    "rank_of": Function(Kind.ACROSS, (Parameter.LAYERS,)),
}
