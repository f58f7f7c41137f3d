"""Signs commands when they are ordered, so that a row which nobody ordered bears no signature.

It must be there and then: a service that signed what it finds in the database would sign what
somebody else has put there. A proposal bears a mark too, with a secret that no trainer is given,
and is looked at again before it becomes an order.
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
    """Nobody may make an order of it, because it could not be signed, or was not when it should."""


class Signer:
    """Of one service. Only attempts whose trainers were given a secret are signed for."""

    def __init__(self, keys: KeyRing) -> None:
        self._keys = keys

    @property
    def current_key(self) -> str | None:
        """Under which new attempts are opened; None: commands are not signed."""
        return self._keys.current

    def trainers_secret(self, run_id: RunId, attempt: int, key: str) -> bytes:
        """What the attempt's trainer is given. Raises MissingKeyError."""
        return self._keys.derive(key, _ORDERS, run_id, str(attempt))

    def holds(self, key: str) -> bool:
        return key in self._keys

    def sign(self, record: CommandRecord, addressee: Addressee) -> CommandRecord:
        """The command as it is to be kept. Raises UnsignedError where the key of the attempt is
        not here."""
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
        """Raises UnsignedError where a stored command is not what was proposed or ordered."""
        wanted = self.sign(record, addressee).signature
        if wanted is not None and not hmac.compare_digest(
            wanted.encode(), (record.signature or "").encode(errors="replace")
        ):
            raise UnsignedError(
                "wrong_signature",
                f"The command {record.id} does not bear the signature of this service: it was "
                "changed in the database, or put there, or comes from a version that signs none.",
            )

    def _signature(self, record: CommandRecord, key: str) -> str:
        is_proposal = record.state is CommandState.PROPOSED
        purpose = _PROPOSALS if is_proposal else _ORDERS
        secret = self._keys.derive(key, purpose, record.run_id, str(record.attempt))
        return signature_of(secret, record.run_id, record.to_command())


def _key_of(record: CommandRecord, addressee: Addressee) -> str | None:
    """That of the attempt, if it is the one that lives: another's trainer obeys nobody."""
    return addressee.signing_key if record.attempt == addressee.attempt else None
