"""Signs commands when they are ordered, so that a row which nobody ordered has no signature.

They cannot be signed later: a service that signed what it finds in the database would also sign
what somebody else has put there. A proposal is marked too, with a secret that no trainer is given,
and is checked again before it becomes an order.
"""

import hmac
from dataclasses import replace
from typing import Final

from runwatch.commands import CommandState
from runwatch.signatures import signature_of
from runwatch.vocabulary import RunId
from runwatch_server.commands.records import Addressee, CommandRecord
from runwatch_server.errors import ConflictError
from runwatch_server.signing import KeyRing, MissingKeyError

_ORDERS: Final = "orders"
_PROPOSALS: Final = "proposals"


class UnsignedError(ConflictError):
    """A command must not be sent, since it cannot be signed or lacks a valid signature."""


class Signer:
    """Signs for one service; only commands to attempts whose trainers were given a secret."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    @property
    def current_key(self) -> str | None:
        """Fingerprint of the key for new attempts; None: commands are not signed."""
        return self._keys.current

    def trainers_secret(self, run_id: RunId, attempt: int, key: str) -> bytes:
        """The secret for the attempt's trainer. Raises MissingKeyError."""
        return self._keys.derive(key, _ORDERS, run_id, str(attempt))

    def holds(self, key: str) -> bool:
        return key in self._keys

    def sign(self, record: CommandRecord, addressee: Addressee) -> CommandRecord:
        """The command with its signature, to be stored. Raises UnsignedError if this service does
        not have the attempt's key."""
        key = _key_of(record, addressee)
        if key is None:
            return replace(record, signature=None)
        try:
            return replace(record, signature=self._signature(record, key))
        except MissingKeyError:
            raise UnsignedError(
                "no_signing_key",
                f"Attempt {record.attempt} was opened under the signing key {key}, which this "
                "service does not have (secret_file): its trainer would refuse the command.",
            ) from None

    def check(self, record: CommandRecord, addressee: Addressee) -> None:
        """Raises UnsignedError if a stored command is not what was proposed or ordered."""
        wanted = self.sign(record, addressee).signature
        if wanted is not None and not hmac.compare_digest(
            wanted.encode(), (record.signature or "").encode(errors="replace")
        ):
            raise UnsignedError(
                "wrong_signature",
                f"The command {record.id} lacks a valid signature of this service: it was changed "
                "in the database, or inserted there, or written by a version that does not sign.",
            )

    def _signature(self, record: CommandRecord, key: str) -> str:
        is_proposal = record.state is CommandState.PROPOSED
        purpose = _PROPOSALS if is_proposal else _ORDERS
        secret = self._keys.derive(key, purpose, record.run_id, str(record.attempt))
        return signature_of(secret, record.run_id, record.to_command())


def _key_of(record: CommandRecord, addressee: Addressee) -> str | None:
    """The attempt's key, if it is the live attempt: the trainer of another obeys nobody."""
    return addressee.signing_key if record.attempt == addressee.attempt else None
