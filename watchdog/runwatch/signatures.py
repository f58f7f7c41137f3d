"""The mark by which a trainer knows that its service ordered a command, and ordered just that.

HMAC-SHA256 with a secret that the service gave to the attempt when it was opened. It speaks for
the run, the attempt, the command's id, its action with every argument, and its expiry; not for
`reason` and `requested_by`, which nobody obeys.
"""

import hashlib
import hmac
from typing import Final

import msgspec

from runwatch.commands import AnyAction, Command
from runwatch.vocabulary import RunId

_PURPOSE: Final = "runwatch command 1"
"""Stands before what is signed, so that a mark for anything else is none for a command."""


def signature_of(secret: bytes, run_id: RunId, command: Command) -> str:
    """64 hexadecimal digits; whatever `command.signature` holds does not enter."""
    return hmac.new(secret, _signed_bytes(run_id, command), hashlib.sha256).hexdigest()


def is_signed(secret: bytes, run_id: RunId, command: Command) -> bool:
    """Whether a command bears its signature; compared in a time that tells nothing of it."""
    wanted = signature_of(secret, run_id, command)
    return hmac.compare_digest(wanted.encode(), command.signature.encode(errors="replace"))


def _signed_bytes(run_id: RunId, command: Command) -> bytes:
    """The same on either side, and after each journey through JSON."""
    signed = (
        _PURPOSE,
        run_id,
        command.attempt,
        command.id,
        _arguments(command.action),
        float(command.expires_at),
    )
    return msgspec.json.encode(signed, order="sorted")


def _arguments(action: AnyAction) -> dict[str, object]:
    """What is not left to its default: a side that knows one argument more reads the same."""
    # An integer where a float is wanted is another text before its first journey than after it.
    travelled: AnyAction = msgspec.json.decode(msgspec.json.encode(action), type=AnyAction)
    given: dict[str, object] = {"kind": travelled.kind}
    for field in msgspec.structs.fields(travelled):
        value: object = getattr(travelled, field.name)
        if value != field.default:
            given[field.name] = value
    return given
