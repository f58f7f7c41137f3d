"""Curves in a line of characters: what is drawn is what was there."""

import math
import sys

from runwatch_server.cli.sparkline import sparkline


def test_the_smallest_value_is_lowest_and_the_largest_highest() -> None:
    assert sparkline([0.0, 3.5, 7.0, 8.0]) == "▁▄██"


def test_a_gap_is_empty_and_what_is_no_finite_number_has_a_sign_of_its_own() -> None:
    assert sparkline([1.0, None, math.nan, math.inf, -math.inf, 2.0]) == "▁ ╳╳╳█"
    assert sparkline([1.0, math.nan, 2.0], only_ascii=True) == "_!@"


def test_a_level_curve_is_low_and_none_is_empty() -> None:
    assert sparkline([4.0, 4.0]) == "▁▁"
    assert sparkline([]) == ""


def test_the_widest_curve_of_floats_is_drawn() -> None:
    assert sparkline([-sys.float_info.max, 0.0, sys.float_info.max]) == "▁▅█"
