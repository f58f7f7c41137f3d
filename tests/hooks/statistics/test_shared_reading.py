"""Tensors that torch's threads read together: the same to the bit, and none where none is due."""

import ctypes
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.hooks.statistics.one_pass_here import one_pass_here
from torch import Tensor

from runwatch_hooks.statistics.cpu import samples_on_host
from runwatch_hooks.statistics.gradient_sums import LIBRARY, GradientReader, OnePass
from runwatch_hooks.statistics.samples import SampledUpdates

_Work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_InThreads = ctypes.CFUNCTYPE(None, _Work, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)

SIZES = (3, 65_535, 65_536, 65_537, 131_072, 200_001, 0, 1)


@pytest.fixture
def compiled() -> OnePass:
    return one_pass_here()


def tensors_of(sizes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(size, generator=generator) for size in sizes]
    for tensor in tensors:
        tensor[tensor.abs() < 0.1] = -0.0
    return tensors


@pytest.mark.parametrize("num_threads", [2, 3, 8])
def test_gradients_read_by_several_threads_are_those_that_one_reads(
    compiled: OnePass, num_threads: int
) -> None:
    tensors = tensors_of(SIZES)
    tensors[5][199_999], tensors[4][65_536] = math.nan, -math.inf
    alone = GradientReader(compiled).read(tensors)

    torch.set_num_threads(num_threads)
    together = GradientReader(compiled).read(tensors)

    assert together.tobytes() == alone.tobytes()
    squares, greatest, nonfinite, zeros, _ = together[:, 3].tolist()
    assert squares == pytest.approx(tensors[3].double().square().sum().item(), rel=1e-6)
    assert (greatest, nonfinite) == (tensors[3].abs().max().item(), 0)
    assert zeros == int((tensors[3] == 0).sum())


def test_updates_followed_by_several_threads_are_those_that_one_follows(compiled: OnePass) -> None:
    def moved(num_threads: int) -> list[bytes]:
        torch.set_num_threads(num_threads)
        tensors = tensors_of(SIZES)
        updates = SampledUpdates(tensors, samples_on_host(compiled))
        found: list[bytes] = []
        for step in range(3):
            updates.before(range(len(tensors)))
            for tensor in tensors:
                tensor.mul_(0.9 + step / 100)
            after = updates.after()
            assert after is not None
            found.append(after[1].numpy().tobytes())
        return found

    assert moved(3) == moved(1)


def counting_threads(asked: list[int]) -> Any:
    """As OpenMP would, with two threads of which the second finds nothing left to do."""

    def in_threads(work: Callable[[int], None], data: int, num_threads: int, _: int) -> None:
        asked.append(num_threads)
        work(data)
        work(data)

    return _InThreads(in_threads)


def test_only_tensors_for_which_torch_takes_threads_itself_are_shared(compiled: OnePass) -> None:
    asked: list[int] = []
    in_threads = counting_threads(asked)
    address = ctypes.cast(in_threads, ctypes.c_void_p).value
    reader = GradientReader(OnePass(ctypes.CDLL(str(LIBRARY)), address))
    small, large = tensors_of((40_000,) * 8), tensors_of((40_000, 65_536))

    reader.read(large)  # by one thread, as torch is told by the tests
    assert asked == []
    torch.set_num_threads(2)
    reader.read(small)
    assert asked == []
    assert reader.read(large).tobytes() == GradientReader(compiled).read(large).tobytes()
    assert asked == [2]


@pytest.mark.skipif("OpenMP" not in torch.__config__.parallel_info(), reason="no OpenMP in torch")
def test_torchs_own_threads_are_found(compiled: OnePass) -> None:
    asked_by_torch = ctypes.CDLL(None)

    assert asked_by_torch.omp_get_max_threads() == torch.get_num_threads()
    torch.set_num_threads(2)
    assert asked_by_torch.omp_get_max_threads() == 2
    assert np.isfinite(GradientReader(compiled).read(tensors_of((300_000,)))).all()
