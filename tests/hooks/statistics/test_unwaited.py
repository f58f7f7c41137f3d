"""The accelerator's path asks for no number, copies nothing by a wait and makes no wide copies:
seen in what it dispatches, as there need be no accelerator."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import pytest
import torch
from tests.hooks.statistics.kernel_cases import drawn
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.utils._python_dispatch import TorchDispatchMode

from runwatch_hooks.faults import Faults
from runwatch_hooks.guard import Outliers
from runwatch_hooks.guard.outliers import norm_over
from runwatch_hooks.statistics.gpu import DeviceStatistics
from runwatch_hooks.statistics.gpu_reading import ForeachReader, norms_of
from runwatch_hooks.statistics.readback import to_device
from runwatch_hooks.statistics.samples import ALL_UP_TO

META = torch.device("meta")
CPU = torch.device("cpu")

ASKING: Final = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal")
"""Operations whose result, or its size, the host has to know."""


class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what would wait for a device, and notes the largest result."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0
        self.num_copied = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in ASKING:
            raise AssertionError(f"{name} would wait for a device")
        if name in ("index", "index_put_") and any(_is_mask(one) for one in args[1]):
            raise AssertionError("a mask's elements would be counted")
        kwargs = dict(kwargs or {})
        if name == "_to_copy" and kwargs.get("device", args[0].device) != args[0].device:
            self.num_copied += 1
            assert kwargs.get("non_blocking"), "a copy between devices that is waited for"
        result = func(*args, **kwargs)
        is_new = isinstance(result, Tensor) and func._schema.returns[0].alias_info is None
        self.largest = max(self.largest, result.numel() if is_new else 0)
        return result


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def of_meta(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.empty(shape, dtype=torch.bfloat16, device=META) for shape in shapes]


def test_no_table_of_it_is_copied_by_a_wait() -> None:
    parameters, grads = (of_meta((300, 20), (7,), (1, 1)) for _ in range(2))
    scale = torch.empty((), device=META)
    with Seen() as seen:
        statistics = DeviceStatistics(parameters, META, ForeachReader())
        for slots in ([0, 1, 2], [0, 2]):  # an expert that was idle
            statistics.read_gradients(slots, [grads[slot] for slot in slots], scale)
            statistics.before_step(slots)
            statistics.after_step()
            statistics.take()

    assert seen.num_copied > 0


@contextmanager
def one_step() -> Generator[tuple[list[Tensor], list[Tensor], DeviceStatistics]]:
    parameters = drawn(3, 50, 20_000, dtype=torch.bfloat16)
    grads = drawn(3, 50, 20_000, dtype=torch.bfloat16)
    statistics = DeviceStatistics(parameters, CPU, ForeachReader())
    statistics.take()
    yield parameters, grads, statistics
    found = statistics.take()
    expected = [float(one.double().square().sum()) ** 0.5 for one in grads]
    assert found[0].tolist() == pytest.approx(expected, rel=1e-4)


def test_gradients_in_half_precision_are_read_as_they_lie() -> None:
    with one_step() as (parameters, grads, statistics), Seen() as seen:
        statistics.read_gradients(range(3), grads, None)
        statistics.before_step(range(3))
        for parameter in parameters:
            parameter.mul_(0.5)
        statistics.after_step()

    assert seen.largest <= 3 * ALL_UP_TO


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_sums_over_half_precision_are_made_in_float32(dtype: torch.dtype) -> None:
    flats = [torch.full((1000,), 300.0, dtype=dtype), torch.full((4096,), 1e4, dtype=dtype)]
    expected = [float(flat.double().square().sum()) ** 0.5 for flat in flats]

    assert norms_of(flats, 2.0).tolist() == pytest.approx(expected, rel=1e-5)
    assert norms_of(flats, torch.inf).tolist() == [float(flat[0]) for flat in flats]


def test_types_are_read_together_and_told_in_order() -> None:
    flats = [*drawn(10), *drawn(20, dtype=torch.float64), *drawn(30, dtype=torch.float16)]
    flats += [torch.tensor([2.0, 0.0]).to(torch.float8_e4m3fn), *drawn(40)]
    expected = torch.stack([flat.float().norm() for flat in flats])

    torch.testing.assert_close(norms_of(flats, 2.0), expected, rtol=1e-3, atol=0.0)


def stepped() -> tuple[Optimizer, Outliers]:
    optimizer = SGD([torch.zeros(2, requires_grad=True)], lr=0.1)
    return optimizer, Outliers([optimizer], Faults())


def test_a_past_of_norms_is_judged_unwaited_for() -> None:
    optimizer, outliers = stepped()
    norms = [torch.tensor([1.0, 2.0]), torch.tensor([torch.nan, 1.0])]
    with Seen():
        verdicts = [outliers.judge(optimizer, norm_over(one), torch.tensor(0.0)) for one in norms]

    assert [float(one.is_outlier) for one in verdicts] == [0.0, 0.0]


def asks(work: Callable[[], object]) -> bool:
    try:
        with Seen():
            work()
    except AssertionError:
        return True
    return False


def test_what_waits_is_seen_here() -> None:
    ones = torch.ones(3)

    assert asks(ones.sum().item)
    assert asks(lambda: bool(ones.all()))
    assert asks(lambda: ones[ones > 0.0])
    assert asks(cast(Any, ones.nonzero))
    assert asks(lambda: ones.to(META))
    assert not asks(lambda: to_device(ones, META))
