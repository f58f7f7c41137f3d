"""`runwatch db check` unpacks every frame in the database, and names what has rotted."""

import asyncio
import json

import pytest
from tests.server.cli.test_database_cli import place, run
from tests.server.harness import Storage, both_engines, frame, serve
from tests.server.telemetry.test_rotted_frames import rot

pytestmark = [pytest.mark.anyio, both_engines]

NUM_FRAMES = 40


async def test_rotted_frames_are_named_wherever_they_stand(storage: Storage) -> None:
    async with serve(storage) as api:
        whole, rotted = await api.new_run(), await api.new_run()
        for seq in range(1, NUM_FRAMES + 1):
            for run_id in (whole, rotted):
                sent = frame(seq, [1.0], first_step=seq)
                assert (await api.post(run_id, sent)).status_code == 200
        for seq in (1, 33):
            await rot(api, rotted, seq)

    checked = await asyncio.to_thread(run, "check", "--json", *place(storage))
    not_read = await asyncio.to_thread(run, "check", "--no-frames", *place(storage))

    faults = json.loads(checked.output)["faults"]
    assert [fault.split(": ")[:2] for fault in faults] == [
        [f"frame of run {rotted}, attempt 1, rank 0, seq {seq}", "crc32"] for seq in (1, 33)
    ]
    assert (checked.exit_code, not_read.exit_code) == (1, 0)
