"""A series as CSV, Arrow and Parquet."""

import importlib
import io
import math
from typing import Any

import httpx
import pytest
from tests.server.harness import Api, frame
from tests.server.telemetry.test_rotted_frames import rot

pytestmark = pytest.mark.anyio


async def export(api: Api, *, accept: str = "*/*", **params: str) -> httpx.Response:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [2.0, math.nan, math.inf]))
    path = f"/runs/{run_id}/series"
    asked = {"metric": "loss", **params}
    reply = await api.call("GET", path, params=asked, headers={"Accept": accept})
    assert reply.status_code == 200, reply.text
    return reply


def check_table(table: Any) -> None:
    found = table.to_pydict()
    assert found["step"] == [0, 1, 2]
    assert found["value"][0] == 2.0
    assert math.isnan(found["value"][1])
    assert found["value"][2] == math.inf


async def test_arrow_carries_numbers_that_are_none_as_themselves(api: Api) -> None:
    reply = await export(api, format="arrow")

    assert reply.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    check_table(importlib.import_module("pyarrow.ipc").open_stream(reply.content).read_all())


async def test_parquet_likewise_asked_for_by_the_header(api: Api) -> None:
    reply = await export(api, accept="application/vnd.apache.parquet, */*;q=0.1")

    check_table(importlib.import_module("pyarrow.parquet").read_table(io.BytesIO(reply.content)))


async def test_the_format_that_is_named_goes_before_the_header(api: Api) -> None:
    reply = await export(api, accept="application/vnd.apache.parquet", format="csv")

    assert reply.text.splitlines() == ["step,value", "0,2.0", "1,NaN", "2,+Inf"]


async def test_without_a_word_it_is_json(api: Api) -> None:
    assert (await export(api)).json()["values"] == [2.0, "NaN", "+Inf"]


async def export_of_rotted(api: Api, **params: str) -> httpx.Response:
    """Four frames of three steps, of which the second and the third have rotted."""
    run_id = await api.new_run()
    for seq in range(1, 5):
        await api.post(run_id, frame(seq, [float(seq)] * 3, first_step=3 * (seq - 1)))
    for seq in (2, 3):
        await rot(api, run_id, seq)
    return await api.call("GET", f"/runs/{run_id}/series", params={"metric": "loss", **params})


async def test_steps_that_cannot_be_read_are_named_in_a_table(api: Api) -> None:
    reply = await export_of_rotted(api, format="csv")

    lines = reply.text.splitlines()
    assert lines[0] == "step,value,gap"
    assert lines[3:7] == ["2,1.0,", "3,,corrupt", "8,,corrupt", "9,4.0,"]


async def test_steps_that_cannot_be_read_are_named_in_arrow(api: Api) -> None:
    reply = await export_of_rotted(api, format="arrow")

    table = importlib.import_module("pyarrow.ipc").open_stream(reply.content).read_all()
    found = table.to_pydict()
    named = [place for place, reason in enumerate(found["gap"]) if reason == "corrupt"]
    assert [(found["step"][at], found["value"][at]) for at in named] == [(3, None), (8, None)]
    assert found["value"].count(1.0) == found["value"].count(4.0) == 3
