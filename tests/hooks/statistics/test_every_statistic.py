"""Each reader of gradients gives each statistic that the table of series has of them."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch.nonfinite import is_absent
from runwatch.series import GRADIENT_STATS, STAT_SPECS
from runwatch_hooks.statistics import cpu
from runwatch_hooks.statistics.cpu import CpuStatistics
from runwatch_hooks.statistics.gpu import DeviceStatistics
from runwatch_hooks.statistics.gpu_reading import ForeachReader
from runwatch_hooks.statistics.totals import NUM_SCALED, STATS, ArrayStats

GRADIENT = torch.tensor([3.0, 0.0, -4.0, 0.0])
WANTED = {"grad_norm": 5.0, "grad_absmax": 4.0, "nonfinite": 0.0, "zero_frac": 0.5}

Stats = NDArray[np.float32]
"""(S, T)"""


def compiled(gradient: Tensor, scale: Tensor | None) -> Stats:
    found = CpuStatistics([gradient.clone()])
    found.read_gradients([0], [gradient], scale)
    return found.take().numpy()


def with_numpy(gradient: Tensor, scale: Tensor | None) -> Stats:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "open_one_pass", lambda: None)
        return compiled(gradient, scale)


def on_device(gradient: Tensor, scale: Tensor | None) -> Stats:
    found = DeviceStatistics([gradient.clone()], gradient.device, ForeachReader())
    found.read_gradients([0], [gradient], scale)
    return found.take().numpy()


def of_arrays(gradient: Tensor, scale: Tensor | None) -> Stats:
    """A program without torch divides its own scale out."""
    unscaled = gradient.numpy() if scale is None else gradient.numpy() / float(scale)
    return ArrayStats().read({"w": unscaled}, None, {})[1]


READERS = [compiled, with_numpy, on_device, of_arrays]
Reader = Callable[[Tensor, Tensor | None], Stats]


@pytest.mark.parametrize("name", GRADIENT_STATS)
@pytest.mark.parametrize("read", READERS)
def test_a_reader_gives_a_statistic(read: Reader, name: str) -> None:
    value = read(GRADIENT, None)[STATS.index(name)]

    assert not is_absent(value).any()
    assert value.tolist() == pytest.approx([WANTED[name]])


@pytest.mark.parametrize("name", GRADIENT_STATS)
@pytest.mark.parametrize("read", READERS)
def test_a_reader_divides_the_loss_scale_out_where_it_is_in(read: Reader, name: str) -> None:
    """A statistic that the scale does not multiply is the same with a scale."""
    value = read(GRADIENT * 8.0, torch.tensor(8.0))[STATS.index(name)]

    assert value.tolist() == pytest.approx([WANTED[name]])


def test_the_statistics_that_the_loss_scale_multiplies_come_first() -> None:
    assert all(STAT_SPECS[name].is_scaled for name in STATS[:NUM_SCALED])
