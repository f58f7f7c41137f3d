"""A stored frame that rots on disk (fault 15): its steps are a gap, and everything else is read."""

import numpy as np
import pytest
import sqlalchemy as sa
from tests.server.harness import Api, both_engines, frame

from runwatch.vocabulary import RunId
from runwatch_server.telemetry.tables import frames

pytestmark = [pytest.mark.anyio, both_engines]


async def rot(api: Api, run_id: RunId, seq: int) -> None:
    """Turns one bit near the end of a frame's bytes, as a disk does."""
    is_frame = (frames.c.run_id == run_id) & (frames.c.seq == seq)
    async with api.services.database.read() as connection:
        body = bytearray(await connection.scalar(sa.select(frames.c.body).where(is_frame)) or b"")
    body[-5] ^= 1
    turned = frames.update().where(is_frame).values(body=bytes(body))
    await api.services.database.write(lambda connection: connection.execute(turned))


async def test_a_rotted_frame_is_a_gap_and_stops_no_reader_and_no_rollup(api: Api) -> None:
    run_id = await api.new_run()
    for seq in range(1, 13):
        ones = np.ones((100, 2), np.float32)
        sent = frame(seq, [1.0] * 100, first_step=100 * (seq - 1), stats=ones)
        assert (await api.post(run_id, sent)).status_code == 200
    await rot(api, run_id, 3)

    near = await api.series(run_id, metric="loss", points=10_000)
    layer = await api.series(run_id, layer="last.weight", stat="grad_norm", points=10_000)
    backtest = await api.json("POST", "/rules/backtest", json={"run_id": run_id})
    await api.services.roller.roll()
    far = await api.series(run_id, layer="last.weight", stat="grad_norm", points=10)

    gap = [{"first_step": 200, "last_step": 299, "reason": "corrupt"}]
    assert layer["gaps"] == gap
    assert len(near["steps"]) == len(layer["steps"]) == 1100
    assert backtest["runs"][0]["rows"] == 1100
    assert sum(far["count"]) == 1100
