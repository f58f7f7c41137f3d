"""A refused body is told what was wanted in its place."""

import msgspec
import pytest

from runwatch.vocabulary import PolicyMode
from runwatch_server.web.bodies import schema_of
from runwatch_server.web.body_faults import wanted_by


class Lower(msgspec.Struct, tag_field="kind", tag="lower", forbid_unknown_fields=True):
    scale: float


class Stop(msgspec.Struct, tag_field="kind", tag="stop", forbid_unknown_fields=True):
    pass


class Order(msgspec.Struct, forbid_unknown_fields=True):
    action: Lower | Stop | None = None
    policies: list[PolicyMode] = []
    named: dict[str, PolicyMode] = {}
    stop: Stop | None = None
    lower: Lower | None = None


SCHEMA = schema_of(Order)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b'{"action": {"kind": "fly"}}', ", wanted lower, stop"),
        (b'{"policies": ["ask", "yes"]}', ", wanted ask, auto, observe"),
        (b'{"polices": []}', ", wanted action, policies, named, stop, lower"),
        (b'{"lower": {"kind": "lower", "scales": 1}}', ", wanted kind, scale"),
        (b'{"action": {"kind": "stop", "now": true}}', ""),
        (b'{"named": {"a": "yes"}}', ""),
        (b'{"policies": 3}', ""),
    ],
)
def test_what_was_wanted_is_told_where_it_is_known(body: bytes, wanted: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(body, type=Order)

    assert wanted_by(SCHEMA, str(refused.value)) == wanted
