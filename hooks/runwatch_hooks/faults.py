"""Catches the hook's own faults, so that none of them reaches the training loop."""

from collections.abc import Callable
from types import TracebackType

from runwatch_hooks.errors import AttachError
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.signals import is_of_a_signal

log = OwnLog(__name__)


class Faults:
    """Counts the hook's faults, and reports the first one at each place."""

    def __init__(self) -> None:
        self.count = 0
        self._told: set[str] = set()
        self._untold: list[str] = []

    def guard(self, place: str, disable: Callable[[], None] | None = None) -> "Guarded":
        """A context manager that stops exceptions from its block. After one, `disable` is called,
        which switches off the part that failed."""
        return Guarded(self, place, disable)

    def untold(self) -> list[str]:
        """Descriptions of faults not yet reported to the service, each returned once."""
        untold, self._untold = self._untold, []
        return untold

    def switch_off(self, place: str, fault: Exception, disable: Callable[[], None]) -> None:
        """Count a fault of a part that `disable` switches off; what that raises is caught too."""
        self.note(place, fault, is_off=True)
        try:
            disable()
        except Exception as error:  # noqa: BLE001 - a part that failed may fail here as well
            self.note(f"{place}, as it was switched off", error, is_off=False)

    def note(self, place: str, fault: Exception, *, is_off: bool) -> None:
        """Count a fault; `is_off` says whether the part that failed is switched off by it."""
        self.count += 1
        if place not in self._told:
            self._told.add(place)
            self._untold.append(f"{place}: {type(fault).__name__}: {_text_of(fault)}"[:500])
            what = "this part is off" if is_off else "left out"
            log.warning("fault at %s, %s; training goes on", place, what, exc_info=fault)


class Guarded:
    """A block whose faults are caught. A class, because each step enters a dozen of them and
    `contextlib.contextmanager` costs several times as much."""

    __slots__ = ("_disable", "_faults", "_place")

    def __init__(self, faults: Faults, place: str, disable: Callable[[], None] | None) -> None:
        self._faults = faults
        self._place = place
        self._disable = disable

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Stop an Exception, unless a signal handler of the program raised it. KeyboardInterrupt,
        SystemExit and the like pass: they end programs."""
        if not isinstance(fault, Exception) or is_of_a_signal(fault):
            return False
        if self._disable is None:
            self._faults.note(self._place, fault, is_off=False)
        else:
            self._faults.switch_off(self._place, fault, self._disable)
        return True


class Attaching:
    """A block of which only an AttachError, for an argument, gets into the program. Another fault
    is logged and ends the block: the process goes on, unwatched."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if not isinstance(fault, Exception) or isinstance(fault, AttachError):
            return False
        if is_of_a_signal(fault):
            return False
        found = f"{type(fault).__name__}: {_text_of(fault)}"[:500]
        log.warning("not watched: %s, while attaching; training goes on", found, exc_info=fault)
        return True


def _text_of(fault: Exception) -> str:
    try:
        return str(fault)
    except Exception:  # noqa: BLE001 - a user-defined exception whose `__str__` fails
        return "(without words)"
