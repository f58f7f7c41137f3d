"""Stand-ins for functions of other people's libraries, which tell us of each call.

Nothing is kept in a module of ours: the wrap that stands in the library knows its listeners, and
when the last one leaves, the function stands there again. Who has taken the wrap meanwhile, by an
import or to wrap it in turn, keeps it: it calls the function, and tells nobody.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from types import MethodType, ModuleType
from typing import Any, Final, Self, cast

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Listener = Callable[[Arguments, Keywords], None]

_CHANGING: Final = threading.RLock()  # a signal handler may end a run within
"""Two runs that begin in two threads would take each other's wraps away."""


@dataclass(frozen=True, slots=True, eq=False)
class Ears:
    """What one observer has at one wrap."""

    before: Listener | None = None
    after: Listener | None = None


class Wrap:
    """Stands in for a function: tells its listeners of a call, and makes it. The function gets what
    the caller gave, but for iterators: of each a list, which the listeners can read as well."""

    def __init__(self, original: Callable[..., Any], owner: ModuleType | type, name: str) -> None:
        """`owner` and `name` are where it stands."""
        functools.update_wrapper(self, original)
        self.original: Final = original
        self.ears: tuple[Ears, ...] = ()
        self._owner = owner
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        ears = self.ears
        args = tuple(_readable(arg) for arg in args)
        kwargs = {name: _readable(arg) for name, arg in kwargs.items()}
        for ear in ears:
            if ear.before is not None:
                ear.before(args, kwargs)
        result = self.original(*args, **kwargs)
        for ear in ears:
            if ear.after is not None:
                ear.after(args, kwargs)
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Itself, as any function: a copy's listeners would never leave."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, str]]:
        """As the name of what stands here, as any function: who reads that back needs nothing of
        ours, and gets the function itself where nobody listens."""
        owner = self._owner
        return getattr, (_ByName(owner) if isinstance(owner, ModuleType) else owner, self._name)


class Holds:
    """One listener's wraps, to be let go together."""

    def __init__(self, wrap: type[Wrap] = Wrap) -> None:
        """`wrap` stands in where none of ours does yet."""
        self._wrap = wrap
        self._held: list[tuple[ModuleType | type, str, Wrap, Ears]] = []

    def hold(self, owner: ModuleType | type, name: str, ears: Ears) -> None:
        """Be told of calls of a module's function, or of a class's method."""
        with _CHANGING:
            found = vars(owner).get(name)
            if not callable(found):  # another version of the library: we see less
                return
            wrap = found if isinstance(found, Wrap) else self._wrap(found, owner, name)
            setattr(owner, name, wrap)
            wrap.ears = (*wrap.ears, ears)
        self._held.append((owner, name, wrap, ears))

    def release(self) -> None:
        held, self._held = self._held, []
        with _CHANGING:
            for owner, name, wrap, ears in held:
                wrap.ears = tuple(one for one in wrap.ears if one is not ears)
                # Somebody else may have wrapped our wrap: then it stays, and tells nobody.
                if not wrap.ears and vars(owner).get(name) is wrap:
                    setattr(owner, name, wrap.original)


class _ByName:
    """A module, as it may stand in a pickle."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return import_module, (self._module.__name__,)


def _readable(argument: object) -> object:
    """An iterator can be read once only: of a list, the original and we both can."""
    if isinstance(argument, Iterator):
        return list(cast("Iterator[object]", argument))
    return argument
