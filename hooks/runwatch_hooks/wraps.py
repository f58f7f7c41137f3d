"""Wrappers around functions of other libraries, which call listeners before and after each call.

A wrapper replaces the function in its module or class, and holds its own listeners: there is no
registry. When the last listener leaves, the original function is put back. Code that has meanwhile
imported the wrapper, or wrapped it, keeps a plain pass-through.
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

_CHANGING: Final = threading.RLock()  # reentrant: a signal handler may end a run here
"""Held while wrappers are put in place: two runs that begin at once in two threads would otherwise
replace each other's."""


@dataclass(frozen=True, slots=True, eq=False)
class Listeners:
    """One observer's callbacks at one function, called before and after the wrapped function."""

    before: Listener | None = None
    after: Listener | None = None


class Wrap:
    """Replaces a function: calls the listeners and the function itself.

    The function receives the caller's arguments, except that an iterator becomes a list, so that
    the listeners can read it as well."""

    def __init__(self, original: Callable[..., Any], owner: ModuleType | type, name: str) -> None:
        """`owner` and `name` say where the function is replaced."""
        functools.update_wrapper(self, original)
        self.original: Final = original
        self.listeners: tuple[Listeners, ...] = ()
        self._owner = owner
        self._name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        listeners = self.listeners
        args = tuple(_readable(arg) for arg in args)
        kwargs = {name: _readable(arg) for name, arg in kwargs.items()}
        for one in listeners:
            if one.before is not None:
                one.before(args, kwargs)
        result = self.original(*args, **kwargs)
        for one in listeners:
            if one.after is not None:
                one.after(args, kwargs)
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Itself, like any function: nobody would remove a copy's listeners."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, str]]:
        """Pickled by its module and name, like any function. It can be loaded without this package,
        and gives the original function in a process without listeners."""
        owner = self._owner
        return getattr, (_ByName(owner) if isinstance(owner, ModuleType) else owner, self._name)


class Subscriptions:
    """The functions that one observer listens to, until `release`."""

    def __init__(self, wrap: type[Wrap] = Wrap) -> None:
        """`wrap` is the class for functions that are not wrapped yet."""
        self._wrap = wrap
        self._entries: list[tuple[ModuleType | type, str, Wrap, Listeners]] = []

    def listen(self, owner: ModuleType | type, name: str, listeners: Listeners) -> None:
        """Listen to calls of a module's function or a class's method."""
        with _CHANGING:
            found = vars(owner).get(name)
            if not callable(found):  # a version of the library without it: fewer calls are seen
                return
            wrap = found if isinstance(found, Wrap) else self._wrap(found, owner, name)
            setattr(owner, name, wrap)
            wrap.listeners = (*wrap.listeners, listeners)
        self._entries.append((owner, name, wrap, listeners))

    def release(self) -> None:
        entries, self._entries = self._entries, []
        with _CHANGING:
            for owner, name, wrap, listeners in entries:
                wrap.listeners = tuple(one for one in wrap.listeners if one is not listeners)
                # If other code has wrapped our wrapper, it stays as a pass-through.
                if not wrap.listeners and vars(owner).get(name) is wrap:
                    setattr(owner, name, wrap.original)


class _ByName:
    """A module in a form that can be pickled."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __reduce__(self) -> tuple[Callable[[str], ModuleType], tuple[str]]:
        return import_module, (self._module.__name__,)


def _readable(argument: object) -> object:
    """A list for an iterator, which could be read only once; anything else unchanged."""
    if isinstance(argument, Iterator):
        return list(cast("Iterator[object]", argument))
    return argument
