"""Callbacks that do not keep their object alive, so that a dropped watch can be noticed."""

from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec, TypeVar
from weakref import ref

_Owner = TypeVar("_Owner")
_Arguments = ParamSpec("_Arguments")


class WeakOwner(Generic[_Owner]):
    """A weak reference to an object, through which others call its methods."""

    def __init__(self, owner: _Owner) -> None:
        self._owner = ref(owner)
        self._kept: _Owner | None = None

    @property
    def is_let_go(self) -> bool:
        """Whether the program has dropped the object and only `keep` holds it."""
        return self._kept is not None

    def keep(self, owner: _Owner) -> None:
        """The program has dropped the object; hold it until `release`, since work is left."""
        self._kept = owner

    def release(self) -> None:
        """The object's work is done: no longer hold it."""
        self._kept = None

    def call(
        self, method: Callable[Concatenate[_Owner, _Arguments], None]
    ) -> Callable[_Arguments, None]:
        """A callback for a method of the object's class. Does nothing once the object is gone."""

        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
            owner = self._kept or self._owner()
            if owner is not None:
                method(owner, *args, **kwargs)

        return call
