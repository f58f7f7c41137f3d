"""Whether the program still holds its watch: one that it has let go can be stepped no more."""

from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec, TypeVar
from weakref import ref

_Owner = TypeVar("_Owner")
_Arguments = ParamSpec("_Arguments")


class Held(Generic[_Owner]):
    """An object as others call it that must not be what keeps it alive."""

    def __init__(self, owner: _Owner) -> None:
        self._owner = ref(owner)
        self._kept: _Owner | None = None

    @property
    def is_let_go(self) -> bool:
        """Whether we alone keep it."""
        return self._kept is not None

    def keep(self, owner: _Owner) -> None:
        """The program has let it go, and there is something left for it to say."""
        self._kept = owner

    def release(self) -> None:
        """All is said."""
        self._kept = None

    def call(
        self, method: Callable[Concatenate[_Owner, _Arguments], None]
    ) -> Callable[_Arguments, None]:
        """A method of its class, for others to call; of one that is gone it does nothing."""

        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
            owner = self._kept or self._owner()
            if owner is not None:
                method(owner, *args, **kwargs)

        return call
