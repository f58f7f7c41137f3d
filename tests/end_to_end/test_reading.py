"""What a run sent, read back into pandas and Arrow from a real service."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import urllib3
from tests.end_to_end.real_service import RealService
from tests.proofs import proof, token_of
from tests.server.harness import LAYOUT, frame, new_id

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.errors import InvalidInputError
from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout
from runwatch_hooks.reading import Gap, connect

pytestmark = pytest.mark.slow


COUNTED = Layout(LAYOUT.layers, ("grad_norm", "nonfinite"))
"""What the hook sends of gradients: norms over finite elements, and how many were not."""


ACTIVATIONS = Layout((Layer("first"), Layer("last")), ("act_mean",))
"""What the hook sends of modules, if activations are asked for."""


def send(service: RealService, *frames: Frame, layouts: tuple[Layout, ...] = (LAYOUT,)) -> str:
    """A run of these frames; returns its id."""
    run_id = new_id()
    service.ask("POST", "/runs", {"run_id": run_id, "name": "a"})
    service.ask(
        "POST", f"/runs/{run_id}/attempts", {"token": token_of(run_id), "started_at": 1.7e9}
    )
    for layout in layouts:
        document = msgspec.to_builtins(layout.to_document())
        service.ask("PUT", f"/runs/{run_id}/layouts/{layout.hash}", document)
    key = service.create_key("ingest")
    for sent in frames:
        reply = urllib3.request(
            "POST",
            f"{service.url}/api/v1/runs/{run_id}/frames",
            body=encode_frame(sent),
            headers={"Authorization": f"Bearer {key}", "Content-Type": CONTENT_TYPE}
            | proof(run_id),
        )
        assert reply.status == 200
    return run_id


def test_steps_that_cannot_be_read_are_told_to_who_reads(service: RealService) -> None:
    service.start()
    ones = np.ones((3, 2), np.float32)
    sent = [frame(seq, [1.0] * 3, first_step=3 * (seq - 1), stats=ones) for seq in (1, 2, 3)]
    run_id = send(service, *sent)
    service.stop()
    service.rot_frame(run_id, 2)
    service.start()

    run = connect(service.url, service.create_key("read")).run(run_id)
    losses = run.history("loss")
    norms = run.history("grad_norm", layer="*")

    assert losses.gaps == norms.gaps == (Gap(3, 5, "corrupt"),)
    assert losses.columns["step"].tolist() == [0, 1, 2, 6, 7, 8]
    assert losses.to_pandas().attrs["gaps"][0]["reason"] == "corrupt"
    assert b'"corrupt"' in norms.to_arrow().schema.metadata[b"gaps"]


def test_a_history_comes_back_as_it_was_sent(service: RealService) -> None:
    service.start()
    stats = np.array([[0.5, 1.0], [math.nan, 2.0], [0.25, math.inf]], np.float32)
    run_id = send(service, frame(1, [2.0, math.nan, 1.0], stats=stats))

    run = connect(service.url, service.create_key("read")).run(run_id)
    losses = run.history("loss").to_pandas()
    norms = run.history("grad_norm", layer="last.*").to_arrow()
    both = run.history("grad_norm", layer="*", first_step=1, last_step=1)

    assert (run.metrics(), run.history("loss").gaps) == (["loss"], ())
    assert run.layers("first*") == ["first.weight"]
    assert losses["step"].tolist() == [0, 1, 2]
    np.testing.assert_array_equal(losses["value"], [2.0, math.nan, 1.0])
    assert norms.to_pydict() == {
        "step": [0, 1, 2],
        "layer": ["last.weight"] * 3,
        "value": [1.0, 2.0, math.inf],
    }
    assert both.columns["layer"].tolist() == ["first.weight", "last.weight"]
    with pytest.raises(InvalidInputError, match="metric_not_found"):
        run.history("nothing")
    with pytest.raises(InvalidInputError, match="no layer"):
        run.history("grad_norm", layer="nothing.*")


def test_norms_that_leave_elements_out_are_named_to_who_reads(service: RealService) -> None:
    service.start()
    stats = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 2.0]], np.float32)
    sent = replace(frame(1, [2.0, 1.0]), layout_hash=COUNTED.hash, stats=stats)
    run_id = send(service, sent, layouts=(COUNTED,))

    run = connect(service.url, service.create_key("read")).run(run_id)
    norms = run.history("grad_norm", layer="*")
    before = run.history("grad_norm", layer="*", last_step=0)

    assert norms.to_arrow().to_pydict() == {
        "step": [0, 1, 0, 1],
        "layer": ["first.weight"] * 2 + ["last.weight"] * 2,
        "value": [1.0, 1.0, 1.0, 0.0],
        "nonfinite": [0, 0, 0, 1],
    }
    assert "nonfinite" not in before.columns


def test_a_stat_is_read_of_the_layers_that_have_it(service: RealService) -> None:
    service.start()
    norms = frame(1, [2.0], stats=np.array([[0.5, 1.0]], np.float32))
    means = replace(
        frame(2, [2.0]), layout_hash=ACTIVATIONS.hash, stats=np.array([[3.0, 4.0]], np.float32)
    )
    run_id = send(service, norms, means, layouts=(LAYOUT, ACTIVATIONS))

    run = connect(service.url, service.create_key("read")).run(run_id)

    assert run.layers("first*") == ["first.weight", "first"]
    assert run.history("grad_norm", layer="first*").columns["layer"].tolist() == ["first.weight"]
    assert run.history("act_mean", layer="*").columns["layer"].tolist() == ["first", "last"]
    with pytest.raises(InvalidInputError, match="no stat"):
        run.history("no_such", layer="first*")
