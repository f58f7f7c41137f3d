"""What is read of a tensor equals what float64 finds in it."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.hooks.statistics.one_pass_here import one_pass_here
from torch import Tensor

from runwatch_hooks.statistics.gradient_sums import GradientReader

Read = Callable[..., list[list[float]]]
"""Sum of squares, max-abs, non-finite, zeros, elements of each tensor."""

FLOATS = torch.float32, torch.float64, torch.bfloat16


@pytest.fixture(params=["numpy", "compiled"])
def reader(request: pytest.FixtureRequest) -> GradientReader:
    if request.param == "numpy":
        return GradientReader()
    return GradientReader(one_pass_here())


@pytest.fixture
def read(reader: GradientReader) -> Read:
    def read(*tensors: Tensor) -> list[list[float]]:
        found: list[list[float]] = reader.read(tensors).T.tolist()
        return found

    return read


@pytest.mark.parametrize(
    "shape", [(1,), (7,), (4096,), (16_384,), (16_385,), (65_536,), (70_001,), (300, 700)]
)
def test_values_equal_a_float64_reference(read: Read, shape: tuple[int, ...]) -> None:
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 1e-3
    [[squares, greatest, nonfinite, zeros, elements]] = read(tensor)

    assert squares == pytest.approx(tensor.double().square().sum().item(), rel=1e-6)
    assert greatest == tensor.abs().max().item()
    assert (nonfinite, zeros, elements) == (0, 0, tensor.numel())


@pytest.mark.parametrize("size", [7, 70_001])
def test_views_that_torch_negates_or_conjugates_are_read(read: Read, size: int) -> None:
    tensor = torch.full((size,), -2.0)
    negated = torch._neg_view(tensor)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    conjugated = torch.complex(tensor, tensor).conj()

    assert read(negated, conjugated) == [
        [4.0 * size, 2.0, 0, 0, size],
        [8.0 * size, 2.0, 0, 0, 2 * size],
    ]


def test_what_was_read_can_be_resized(reader: GradientReader) -> None:
    tensors = [torch.ones(size, dtype=kind) for size in (7, 70_001) for kind in FLOATS]
    reader.read(tensors)
    reader.squares(tensors)
    for tensor in tensors:
        tensor.untyped_storage().resize_(0)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("size", [7, 70_001])
def test_of_a_compressed_sparse_tensor_the_rest_are_zeros(read: Read, size: int) -> None:
    row = torch.zeros(1, size)
    row[0, 3] = 3.0
    compressed = torch.sparse_compressed_tensor(
        torch.tensor([0, 1]), torch.tensor([3]), torch.tensor([3.0]), row.shape,
        layout=torch.sparse_csr, check_invariants=True,
    )  # fmt: skip

    assert read(compressed) == [[9.0, 3.0, 0, size - 1, size]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [100, 100_000])
def test_other_float_types_are_read_in_at_least_float32(
    read: Read, dtype: torch.dtype, size: int
) -> None:
    tensor = torch.full((size,), 100.0, dtype=dtype)
    tensor[3] = 0.0

    assert read(tensor) == [[(size - 1) * 1e4, 100.0, 0, 1, size]]


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize(("one", "greatest"), [(math.nan, "nan"), (math.inf, "inf")])
def test_what_is_not_finite_is_counted_and_says_what_it_is(
    read: Read, size: int, one: float, greatest: str
) -> None:
    tensor = torch.zeros(size)
    tensor[:5] = torch.tensor([3.0, one, math.inf, -math.inf, -4.0])
    ((squares, magnitude, *counts),) = read(tensor)

    assert (squares, str(magnitude)) == (25.0, greatest)
    assert counts == [3, size - 5, size]


@pytest.mark.parametrize("size", [10, 100_000])
def test_minus_zero_is_a_zero_and_a_denormal_is_none(read: Read, size: int) -> None:
    tensor = torch.ones(size)
    tensor[:3] = torch.tensor([0.0, -0.0, 1e-40])

    assert read(tensor)[0][3] == 2


@pytest.mark.parametrize("size", [10, 100_000])
def test_the_greatest_magnitude_may_be_a_negative_number(read: Read, size: int) -> None:
    tensor = torch.ones(size)
    tensor[1] = -9.0

    assert read(tensor)[0][1] == 9.0


@pytest.mark.parametrize("value", [1e25, 1e-25])
@pytest.mark.parametrize("size", [10, 100_000])
def test_squares_beyond_float32_are_summed_all_the_same(
    read: Read, value: float, size: int
) -> None:
    [[squares, greatest, nonfinite, _, _]] = read(torch.full((size,), value))

    assert squares == pytest.approx(size * value**2, rel=1e-5)
    assert greatest == pytest.approx(value, rel=1e-6)
    assert nonfinite == 0


def test_an_empty_tensor_has_nothing_of_everything(read: Read) -> None:
    one, empty, other = read(torch.ones(2), torch.empty(0), torch.ones(3))

    assert one == [2.0, 1.0, 0, 0, 2]
    assert empty == [0.0, 0.0, 0, 0, 0]
    assert other == [3.0, 1.0, 0, 0, 3]


def test_many_small_tensors_keep_their_own_sums(read: Read) -> None:
    tensors = [torch.full((size,), float(size)) for size in (5000, 1, 16_000, 9000, 3, 16_384)] * 4
    tensors[7] = torch.tensor([math.nan])
    found = read(*tensors)

    assert [one[4] for one in found] == [tensor.numel() for tensor in tensors]
    assert [index for index, one in enumerate(found) if math.isnan(one[1])] == [7]
    assert [one[1] for index, one in enumerate(found) if index != 7] == [
        float(tensor.numel()) for index, tensor in enumerate(tensors) if index != 7
    ]
    assert [index for index, one in enumerate(found) if one[2]] == [7]


@pytest.mark.parametrize("size", [6, 300])
def test_gradients_that_are_not_contiguous_are_read_whole(read: Read, size: int) -> None:
    matrix = torch.arange(float(size * size)).reshape(size, size)
    images = torch.randn(2, 3, size, 4).to(memory_format=torch.channels_last)
    expanded = torch.ones(1).expand(size)
    slices = matrix[:, ::2]

    for tensor in (matrix.t(), images, expanded, slices):
        [[squares, greatest, _, zeros, elements]] = read(tensor)
        assert squares == pytest.approx(tensor.double().square().sum().item(), rel=1e-6)
        assert greatest == tensor.abs().max().item()
        assert zeros == (tensor == 0).sum().item()
        assert elements == tensor.numel()


def test_a_sparse_gradient_is_coalesced_and_what_it_lacks_is_zero(read: Read) -> None:
    embedding = torch.nn.Embedding(10, 2, sparse=True)
    embedding(torch.tensor([3, 3, 7])).sum().backward()
    assert embedding.weight.grad is not None

    assert read(embedding.weight.grad) == [[2 * 2.0**2 + 2 * 1.0, 2.0, 0, 16, 20]]


def test_complex_gradients_count_as_pairs(read: Read) -> None:
    assert read(torch.tensor([3 + 4j, 0j])) == [[25.0, 4.0, 0, 2, 4]]


def test_reading_changes_no_bit_of_a_gradient(read: Read) -> None:
    tensors = [torch.randn(100), torch.randn(100_000), torch.tensor([math.nan, -0.0])]
    before = [tensor.numpy().tobytes() for tensor in tensors]
    read(*tensors)

    assert [tensor.numpy().tobytes() for tensor in tensors] == before


def test_a_norm_of_many_elements_is_exact_to_1e_6(reader: GradientReader) -> None:
    tensor = torch.randn(1_000_000, generator=torch.Generator().manual_seed(3))
    reference = float(np.square(tensor.numpy(), dtype=np.float64).sum())

    assert reader.squares([tensor]) == pytest.approx([reference], rel=1e-6)


def test_a_norm_shows_what_is_not_finite(reader: GradientReader) -> None:
    tensors = [torch.tensor([1.0, value]) for value in (math.nan, math.inf, 2.0)]
    not_a_number, infinite, finite = reader.squares(tensors).tolist()

    assert math.isnan(not_a_number)
    assert (infinite, finite) == (math.inf, 5.0)


@pytest.mark.parametrize("value", [1e25, 1e-25, 0.0])
def test_a_norm_beyond_float32_is_taken_in_float64(reader: GradientReader, value: float) -> None:
    [squares] = reader.squares([torch.full((3,), value)])

    assert squares == pytest.approx(3 * value**2, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.complex64])
def test_a_norm_is_of_any_type_and_of_no_elements_too(
    reader: GradientReader, dtype: torch.dtype
) -> None:
    tensors = [torch.ones(3, dtype=dtype), torch.ones(0, dtype=dtype), torch.ones(2)]

    assert reader.squares(tensors).tolist() == [3.0, 0.0, 2.0]


def test_a_sum_of_equal_squares_is_not_rounded_away(read: Read) -> None:
    tensor = torch.full((1_000_000,), 0.1)
    reference = 1e6 * float(np.float32(0.1)) ** 2

    assert read(tensor)[0][0] == pytest.approx(reference, rel=1e-6)


def test_memory_that_was_freed_is_not_read() -> None:
    compiled = one_pass_here()
    parameter = torch.ones(1000)
    parameter.untyped_storage().resize_(0)

    assert GradientReader(compiled).read([parameter]).T.tolist() == [[0.0, 0.0, 0, 0, 1000]]


def test_a_tensor_of_a_class_of_its_own_is_read_as_torch_shows_it(read: Read) -> None:
    class Wrapped(Tensor):
        pass

    assert read(torch.ones(3).as_subclass(Wrapped)) == [[3.0, 1.0, 0, 0, 3]]


def test_both_ways_of_reading_find_the_same() -> None:
    compiled = one_pass_here()
    generator = torch.Generator().manual_seed(2)
    tensors = [torch.randn(size, generator=generator) for size in range(1, 70_000, 1777)]
    for tensor in tensors:
        tensor[tensor.abs() < 0.1] = -0.0
    tensors[5][3], tensors[9][0] = math.nan, -math.inf
    one, other = GradientReader(compiled).read(tensors), GradientReader().read(tensors)

    assert one[0] == pytest.approx(other[0], rel=1e-6)
    assert np.array_equal(one[1:], other[1:], equal_nan=True)
