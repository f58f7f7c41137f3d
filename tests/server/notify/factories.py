"""Alerts as they are told, with defaults."""

from dataclasses import replace
from typing import Any

from runwatch.alerts import AlertState
from runwatch.vocabulary import AlertId, RunId, Severity
from runwatch_server.alerts.records import AlertRecord, Facts
from runwatch_server.notify.cases import Case
from runwatch_server.notify.records import Delivery, DeliveryState, Kind

FIRED_AT = 1_800_000_000.0

_ALERT = AlertRecord(
    run_id=RunId("0" * 26),
    id=AlertId("1" * 26),
    project="pretrain",
    episode="e" * 32,
    rule="GradientSpike",
    rule_hash="h",
    severity=Severity.CRITICAL,
    labels={},
    state=AlertState.FIRING,
    live=True,
    attempt=1,
    segment=0,
    rank=0,
    onset_step=100,
    onset_at=FIRED_AT - 5.0,
    last_step=103,
    facts=Facts(
        value=812.4,
        first_layer="blocks.12.mlp.down",
        layers=("blocks.12.mlp.down", "blocks.12.mlp.up"),
        num_layers=5,
        summary="the norm of the gradient is 41 times its median",
    ),
    created_at=FIRED_AT,
)


def a_case(
    *,
    resolved_at: float | None = None,
    fired_at: float = FIRED_AT,
    times: int = 1,
    settles_step: int | None = None,
    **alert: Any,
) -> Case:
    return Case(
        alert=replace(_ALERT, **alert),
        run_name="llama",
        layer_group="blocks.12",
        fired_at=fired_at,
        resolved_at=resolved_at,
        times=times,
        settles_step=settles_step,
        commands=(),
    )


def a_delivery(**facts: Any) -> Delivery:
    known: dict[str, Any] = {
        "number": 1,
        "run_id": _ALERT.run_id,
        "alert_id": _ALERT.id,
        "project": "pretrain",
        "receiver": "team",
        "kind": Kind.FIRING,
        "dedup_key": _ALERT.episode,
        "state": DeliveryState.WAITING,
        "created_at": FIRED_AT,
        "due_at": FIRED_AT,
        "attempts": 0,
        "first_failed_at": None,
        "delivered_at": None,
        "error": None,
    }
    return Delivery(**(known | facts))
