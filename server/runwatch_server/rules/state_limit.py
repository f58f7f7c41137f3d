"""Limits the memory that all rules in force for a project's runs may use together.

One thread judges everybody's runs, so one project must not slow down the others.
"""

from typing import Final

from runwatch.rules.limits import MAX_STATE_BYTES, NOMINAL_LAYERS
from runwatch.rules.loading import state_bytes
from runwatch_server.errors import UnprocessableError
from runwatch_server.rules.pack import RuleSet

_MIB: Final = 2**20


def check_state(before: RuleSet, after: RuleSet) -> None:
    """Raises UnprocessableError if the windows of the rules in force take more than a file may have
    and more than before. So a set that is too large already can still be reduced."""
    found, held = _bytes_of(after), _bytes_of(before)
    if found > max(MAX_STATE_BYTES, held):
        raise UnprocessableError(
            "too_much_state",
            f"found that the windows of all rules in force take {found / _MIB:.1f} MiB with "
            f"{NOMINAL_LAYERS} layers, wanted at most {MAX_STATE_BYTES // _MIB} MiB "
            f"(without this change they take {held / _MIB:.1f} MiB)",
        )


def _bytes_of(rule_set: RuleSet) -> int:
    return state_bytes(rule_set.rules, NOMINAL_LAYERS)
