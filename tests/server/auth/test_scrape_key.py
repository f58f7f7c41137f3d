"""A key for Prometheus, left in a file."""

import stat
from pathlib import Path

import pytest
from tests.server.harness import serve

from runwatch_server.errors import SettingsError

pytestmark = pytest.mark.anyio


async def test_the_key_in_the_file_reads_and_does_no_more(tmp_path: Path) -> None:
    file = tmp_path / "key"
    async with serve(tmp_path / "data", scrape_key_file=file) as api:
        scraped = await api.http.get(
            "/metrics", headers={"Authorization": f"Bearer {file.read_text()}"}
        )
        keys = await api.call("GET", "/keys", key=file.read_text())

    assert (scraped.status_code, keys.status_code) == (200, 403)
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


async def test_a_restart_keeps_the_key_that_still_holds(tmp_path: Path) -> None:
    file = tmp_path / "key"
    async with serve(tmp_path / "data", scrape_key_file=file):
        first = file.read_text()
    async with serve(tmp_path / "data", scrape_key_file=file):
        second = file.read_text()

    assert second == first


async def test_a_key_that_was_revoked_is_replaced_at_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "key"
    async with serve(tmp_path / "data", scrape_key_file=file) as api:
        first = file.read_text()
        await api.call("DELETE", f"/keys/{first.split('_')[1]}")
    async with serve(tmp_path / "data", scrape_key_file=file) as api:
        second = file.read_text()
        scraped = await api.http.get("/metrics", headers={"Authorization": f"Bearer {second}"})

    assert second != first
    assert scraped.status_code == 200


async def test_a_folder_that_is_not_there_keeps_the_service_from_starting(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="scrape_key_file"):
        async with serve(tmp_path / "data", scrape_key_file=tmp_path / "none" / "key"):
            pass
