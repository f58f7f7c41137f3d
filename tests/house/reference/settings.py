"""docs/reference/settings.md: every variable of the environment."""

import re
from dataclasses import fields
from enum import Enum

from tests.house.reference.docstrings import field_texts, table

from runwatch_hooks.settings.environment import Environment
from runwatch_server.cli.setting_checks import OF_CLIENTS
from runwatch_server.settings import Settings

HEAD = """# Settings

Made from the code by `make docs`. All are environment variables; `runwatch doctor` checks each of
them.

## The trainer

`attach` and `open_run` use these unless an argument says otherwise; commands use `RUNWATCH_URL` and
`RUNWATCH_TOKEN`.

{trainer}

## The service

An option of `runwatch serve`, if there is one, takes precedence over the variable.

{service}
"""


def rendered() -> str:
    return HEAD.format(trainer=_trainer(), service=_service())


def _trainer() -> str:
    texts = [
        re.fullmatch(r"([A-Z_]+)[:,] (.*)", text) for text in field_texts(Environment).values()
    ]
    found = [match for match in texts if match is not None]
    assert {match[1] for match in found if match[1].startswith("RUNWATCH_")} == set(OF_CLIENTS)
    return table(
        ["variable", "what it says"],
        [[f"`{match[1]}`", match[2][:1].upper() + match[2][1:]] for match in found],
    )


def _service() -> str:
    texts = field_texts(Settings)
    rows = [
        [f"`RUNWATCH_{field.name.upper()}`", _default(field.default), texts[field.name]]
        for field in fields(Settings)
    ]
    return table(["variable", "default", "what it says"], rows)


def _default(value: object) -> str:
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, bool):
        return f"`{int(value)}`"
    return f"`{value.value if isinstance(value, Enum) else value}`"
