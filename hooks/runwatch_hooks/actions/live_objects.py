"""Objects with a `state_dict`: schedulers, loaders, an EMA; and random generators.

This is the only part of the training state that runs other people's code, which may refuse a state.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from runwatch_hooks.actions.errors import StateMismatchError
from runwatch_hooks.actions.loaders import LoaderPosition, draws_by_itself
from runwatch_hooks.actions.own_copies import Living
from runwatch_hooks.actions.rng import Generator, GeneratorState, HasState, ProcessRng
from runwatch_hooks.actions.trees import HostCopies, Mapped
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.signals import is_of_a_signal

log = OwnLog(__name__)


class LiveObjects:
    """These objects, by name. Python's, NumPy's and torch's global generators are always
    included."""

    def __init__(
        self,
        schedulers: Sequence[HasState],
        extra: Mapping[str, HasState | Generator],
        own: Mapping[str, HasState],
    ) -> None:
        """`own` is state of the hook itself. Captures without it can be restored as well."""
        self.given = (*schedulers, *extra.values())
        self._all: dict[str, HasState] = {
            f"scheduler{index}": item for index, item in enumerate(schedulers)
        }
        self._generators: dict[str, HasState] = {"rng": ProcessRng()}
        for name, item in extra.items():
            if isinstance(item, HasState):
                self._all[f"extra.{name}"] = _seen_through(item)
            else:
                self._generators[f"extra.{name}"] = GeneratorState(item)
        self._own = {f"own.{name}": item for name, item in own.items()}
        self._all |= self._own
        self._all |= self._generators  # last: restoring the others may draw from them

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def capture(self, copies: HostCopies, old: Mapped) -> Mapped:
        """Owned copies of their states."""
        return {
            name: copies.copy(item.state_dict(), old.get(name)) for name, item in self._all.items()
        }

    def completed(self, saved: Mapped) -> Mapped:
        """A capture with the hook's own current state where it has none, and without state of the
        hook that no longer exists."""
        known = {
            name: state
            for name, state in saved.items()
            if name in self._own or not str(name).startswith("own.")
        }
        missing = self._own.keys() - known.keys()
        return {**known, **{name: self._own[name].state_dict() for name in missing}}

    def load(self, saved: Mapped, *, is_agreed: bool, living: Living = tuple) -> list[str]:
        """Restore each object. If one refuses its state, all are put back as they were and
        StateMismatchError is raised. If `is_agreed`, only that one is put back, and the names of
        such objects are returned. States may refer to the `living`, which are not copied."""

        def copied(state: object) -> dict[str, object]:
            return cast("dict[str, object]", HostCopies(living).copy(state))

        generators = {name: copied(one.state_dict()) for name, one in self._generators.items()}
        before: dict[str, dict[str, object]] = {}
        refused: list[str] = []
        for name, item in self._all.items():
            before[name] = generators[name] if name in generators else copied(item.state_dict())
            try:
                item.load_state_dict(copied(saved[name]))
            except Exception as error:
                if is_of_a_signal(error):
                    raise
                if not is_agreed:
                    self._put_back(before | generators)
                    raise StateMismatchError(f"{name}: refuses its state ({error})") from error
                log.warning("%s refused its saved state, and is left unchanged: %s", name, error)
                self._put_back({name: before[name]})
                refused.append(name)
        return refused

    def _put_back(self, states: Mapping[str, dict[str, object]]) -> None:
        for name, state in states.items():
            try:
                self._all[name].load_state_dict(state)
            except Exception as error:  # noqa: BLE001  # the others must still be put back
                log.warning("%s refused even its own previous state: %s", name, error)


def _seen_through(item: HasState) -> HasState:
    return LoaderPosition(item) if draws_by_itself(item) else item
