"""Where the promise is kept that training is never harmed: a fault of ours ends here."""

from collections.abc import Callable
from types import TracebackType

from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)


class Faults:
    """Counts what went wrong inside the hook, and says it once a place."""

    def __init__(self) -> None:
        self.count = 0
        self._told: set[str] = set()
        self._untold: list[str] = []

    def guard(self, place: str, disable: Callable[[], None] | None = None) -> "Guarded":
        """Run a block whose faults must not reach the training loop; `disable` what had one."""
        return Guarded(self, place, disable)

    def untold(self) -> list[str]:
        """Descriptions of faults that the service has not been told of, each once."""
        untold, self._untold = self._untold, []
        return untold

    def note(self, place: str, fault: Exception, *, is_off: bool) -> None:
        """One has happened, and the block that had it is `is_off`."""
        self.count += 1
        if place not in self._told:
            self._told.add(place)
            self._untold.append(f"{place}: {type(fault).__name__}: {_text_of(fault)}"[:500])
            what = "this part is off" if is_off else "left out"
            log.warning("fault at %s, %s; training goes on", place, what, exc_info=fault)


class Guarded:
    """A block of ours. Each step enters a dozen: a class costs a fraction of a generator."""

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
        """Training is never harmed, whatever we did wrong; what ends a program is not ours."""
        if not isinstance(fault, Exception):
            return False
        self._faults.note(self._place, fault, is_off=self._disable is not None)
        if self._disable is not None:
            try:
                self._disable()
            except Exception as error:  # noqa: BLE001 - what had a fault may have one here, too
                self._faults.note(f"{self._place}, as it was switched off", error, is_off=False)
        return True


def _text_of(fault: Exception) -> str:
    try:
        return str(fault)
    except Exception:  # noqa: BLE001 - of an exception of other people's
        return "(without words)"
