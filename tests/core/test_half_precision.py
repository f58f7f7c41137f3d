"""The bits of numbers, against those of the types themselves."""

import numpy as np
import pytest

from runwatch.half_precision import NUM_BITS, significant_bits, spacing


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, 0), (1.0, 1), (-2.5, 3), (255.0, 8), (2.0**-1074, 1), (0.2, 52)]
)
def test_the_bits_of_a_number_are_counted_from_its_first_to_its_last(
    value: float, expected: int
) -> None:
    assert significant_bits(value) == expected


def test_a_number_in_float16_has_its_bits_and_the_next_is_at_its_distance() -> None:
    numbers_N = np.random.default_rng(0).uniform(0.01, 12.0, 500).astype(np.float16)
    next_N = np.nextafter(numbers_N, np.float16(np.inf))
    distances_N = next_N.astype(np.float64) - numbers_N.astype(np.float64)

    check(numbers_N.tolist(), distances_N.tolist(), NUM_BITS["float16"])


def test_a_number_in_bfloat16_has_its_bits_and_the_next_is_at_its_distance() -> None:
    drawn_N = np.random.default_rng(0).uniform(0.01, 12.0, 500).astype(np.float32)
    bits_N = drawn_N.view(np.uint32) & np.uint32(0xFFFF0000)  # the upper half of a float32
    numbers_N = bits_N.view(np.float32)
    next_N = (bits_N + np.uint32(0x10000)).view(np.float32)

    check(numbers_N.tolist(), (next_N - numbers_N).tolist(), NUM_BITS["bfloat16"])


def check(numbers: list[float], distances: list[float], num_bits: int) -> None:
    assert max(map(significant_bits, numbers)) == num_bits
    assert [spacing(value, num_bits) for value in numbers] == distances
