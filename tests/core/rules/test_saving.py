"""A state that the version before saved is taken up: a restart after an upgrade forgets nothing."""

import msgspec
import numpy as np
from tests.core.rules.test_evaluator import RULES, rows_of

from runwatch import zstd
from runwatch.rules import Evaluator


def as_first_version(state: bytes) -> bytes:
    """All values as float64, steps of its own for each layer, nothing compressed."""
    saved = msgspec.msgpack.decode(zstd.decompress(state))
    for history in saved["histories"].values():
        values = np.frombuffer(history["values"], f"<f{history.pop('value_bytes')}")
        steps = np.frombuffer(history["steps"], "<i8").reshape(-1, history["depth"])
        all_steps = np.broadcast_to(steps, (history["num_columns"], history["depth"]))
        history |= {"values": values.astype("<f8").tobytes(), "steps": all_steps.tobytes()}
    return msgspec.msgpack.encode(saved | {"version": 1})


def test_a_state_of_the_first_version_goes_on_as_if_nothing_had_been() -> None:
    noise = np.random.default_rng(0).lognormal(0.0, 0.1, (30, 4)).tolist()
    losses, layers = [row[0] for row in noise], [row[1:] for row in noise]
    losses[25], layers[25] = 50.0, [1.0, 90.0, 1.0]
    rows = rows_of(losses, layers)
    unbroken = Evaluator(RULES)
    unbroken.observe(rows.between(0, 20))

    upgraded = Evaluator.restore(RULES, as_first_version(unbroken.state()))
    told = [one.observe(rows.between(20, 30)) for one in (unbroken, upgraded)]

    assert repr(told[0]) == repr(told[1])
    assert {one.rule for one in told[0]} >= {"Spike", "LayerSpike"}
