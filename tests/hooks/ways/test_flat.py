"""The hook holds no more after many steps than after some."""

from pathlib import Path

import pytest
from benchmarks.hook_flat import grown, readings
from tests.hooks.transport.stub_service import TOKEN, StubService, serving


@pytest.mark.slow
def test_threads_files_and_memory_stay_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(StubService()) as service:
        found = readings(2000, 2, service.url, TOKEN)

    assert found[-1].step == 2000
    # The stub, in this process, keeps every frame, and that is not ours.
    assert grown(found, allowed_mib=16.0) == []
