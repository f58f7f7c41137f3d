"""A stride through memory whose elements are spread over all dimensions of a tensor.

Elements at a constant stride are what the kernels read fastest, and lie evenly along the memory
and so over the first dimension. Their places along the others depend on the stride: one of 128
through (512, 256, 1, 1) meets two of 256 columns, and one of 16383 through (4096, 4096) meets a
quarter of all columns, side by side. How wide the gaps are is known without listing them: the
places modulo a length are those of a rotation, whose gaps follow from Euclid's algorithm (the
three-gap theorem).
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, islice
from typing import Final

_SLACK: Final = 5
"""A stride may be wider by a fifth than the one that gives the wanted number of elements."""
_LEAST_SLACK: Final = 6
"""Where strides are short: of five numbers in a row, all may have a divisor in common with 210."""
_MOST_TRIED: Final = 512
"""With 128, three of 20,000 shapes were left with a gap of 3, two columns of three; with 512 none
is."""
_MOST_TRIED_BLIND: Final = 24
"""If the rows' length is not known: there are more lengths to look at, and none is perfect."""
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0
_GOOD: Final = 1.75
"""Widest gap, in multiples of the least possible. The best stride through a long row has 1.6."""
_USUAL: Final = tuple(factor << power for power in range(3, 15) for factor in (1, 3))
"""Lengths that the rows of a tensor may have had before it was flattened."""


@lru_cache(maxsize=4096)
def spread_stride(shape: tuple[int, ...], num: int) -> int:
    """The stride at which nearly `num` elements of a contiguous tensor are read, by its shape."""
    size = math.prod(shape)
    if size <= num:
        return 1
    rows = [math.prod(shape[place:]) for place in range(1, len(shape))]
    lengths = {one for one in rows or _USUAL if 1 < one < size}
    best, least = 1, math.inf
    for stride in islice(_tried(-(-size // num)), _MOST_TRIED if rows else _MOST_TRIED_BLIND):
        widest = max((_gap(stride, one, -(-size // stride)) for one in lengths), default=1.0)
        if widest < least:
            best, least = stride, widest
        if widest <= _GOOD:
            break
    return best


def _tried(stride: int) -> Iterator[int]:
    """Strides from this one on, scattered."""
    slack = max(stride // _SLACK, _LEAST_SLACK)
    yield stride
    for place in count(1):
        yield stride + int(place * _GOLDEN % 1.0 * (slack + 1))


def _gap(stride: int, length: int, num: int) -> float:
    """The widest gap between `num` multiples of a stride modulo a length, in multiples of the
    least possible."""
    return _widest_gap(stride, length, num) / max(1.0, length / num)


def _widest_gap(stride: int, length: int, num: int) -> int:
    wide, narrow = length, stride % length
    before, after = 0, 1  # multiples after which the gaps are no wider than these
    while narrow:
        times = wide // narrow
        if (times + 1) * after + before > num:
            return wide - max((num - before) // after - 1, 0) * narrow
        wide, narrow = narrow, wide - times * narrow
        before, after = after, times * after + before
    return wide
