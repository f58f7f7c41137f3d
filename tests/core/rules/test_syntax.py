"""Rule texts are parsed by several threads of a service at a time."""

import gc
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

import pytest

from runwatch.rules.syntax import parse_text

TEXT = " or ".join(f"quantile(loss, 0.{number}, 4096) > 1e9" for number in range(11, 31))


def let_others_run(_: str, __: object) -> None:
    """As whatever looks on at the collector does, in Python: a client of Prometheus, say."""
    sum(range(50))


@pytest.fixture
def restless() -> Generator[None]:
    """Threads that take turns in each other's midst."""
    interval_s, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    gc.callbacks.append(let_others_run)
    yield
    gc.callbacks.remove(let_others_run)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("restless")
def test_threads_that_parse_at_once_do_not_come_into_each_other_s_way() -> None:
    with ThreadPoolExecutor(4) as threads:
        roots = list(threads.map(parse_text, [TEXT] * 400))

    assert len(roots) == 400
