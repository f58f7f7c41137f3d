"""Numbers as people read them, written in one way in alerts, in messages and on the page.

Groups of three by a narrow blank that breaks no line (1 234 567), four digits that count (0.0312),
an exponent only where zeros would have to be counted (1.2e-7), NaN and infinities as themselves.
The page's script writes them alike (`static/numbers.js`); one test holds both to one table.
"""

import math
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

GROUP: Final = "\u202f"
MINUS: Final = "\u2212"
DIGITS: Final = 4
_SMALL: Final = 1e-3
_LARGE: Final = 1e7
_GROUPS: Final = re.compile(r"(?<=\d)(?=(?:\d{3})+(?!\d))")
_WORDS: Final = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}


def count(value: int | None) -> str:
    """A step or another whole number: 1 234 567."""
    return "–" if value is None else _signed(value < 0, _GROUPS.sub(GROUP, str(abs(value))))


def counted(value: int, noun: str) -> str:
    """With its noun: 1 layer, 3 layers."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def number(value: float | str | None, digits: int = DIGITS) -> str:
    """A measured value; the texts of JSON are its "NaN", "+Inf" and "-Inf". Whole digits are never
    left out below ten millions: 12 345 has five."""
    if value is None:
        return "–"
    if isinstance(value, str):
        value = _WORDS[value]
    if math.isnan(value):
        return "NaN"
    return _signed(value < 0, _size(abs(value), digits))


def _size(size: float, digits: int) -> str:
    if math.isinf(size):
        return "∞"
    if size != 0 and not _SMALL <= size < _LARGE:
        mantissa, exponent = f"{_rounded(size, digits):e}".split("e")
        return f"{_without_zeros(mantissa)}e{int(exponent)}"
    whole, _, rest = f"{_rounded(size, max(digits, len(str(int(size))))):f}".partition(".")
    return _without_zeros(f"{_GROUPS.sub(GROUP, whole)}.{rest}")


def _rounded(size: float, digits: int) -> Decimal:
    """Halves away from zero, as scripts in browsers round."""
    return Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(Decimal(size))


def _without_zeros(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _signed(is_negative: bool, text: str) -> str:
    """Infinity always bears its sign."""
    return f"{MINUS}{text}" if is_negative else f"+{text}" if text == "∞" else text
