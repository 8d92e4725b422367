"""Objects of the blocking driver, awaited: each of their methods stands once, in the driver."""

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

B = TypeVar("B")
B_co = TypeVar("B_co", covariant=True)
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")


class Runs(Protocol):
    """A connection, as what belongs to it needs it."""

    def run(self, body: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Run a function of the blocking driver where it may wait."""
        ...


class Awaits(Runs, Protocol[B_co]):
    """What has a blocking object."""

    @property
    def blocking(self) -> B_co: ...


class Awaited(Generic[B]):
    """Has a blocking object, which its connection runs."""

    def __init__(self, owner: Runs, blocking: B) -> None:
        self.owner = owner
        self.blocking = blocking

    def run(self, body: Callable[[], T]) -> Coroutine[Any, Any, T]:
        return self.owner.run(body)


class Entered(Awaited[B]):
    """One that `async with` gives as it is."""

    async def __aenter__(self) -> Self:
        return self


def awaited(
    method: Callable[Concatenate[B, P], T],
) -> Callable[Concatenate[Awaits[B], P], Coroutine[Any, Any, T]]:
    """Return a blocking method, awaited: with its arguments, result and docstring."""

    @wraps(method)
    async def call(self: Awaits[B], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(partial(method, self.blocking, *args, **kwargs))

    return call


def giving(
    make: Callable[[Any, T], R], method: Callable[Concatenate[B, P], T]
) -> Callable[Concatenate[Awaits[B], P], Coroutine[Any, Any, R]]:
    """Return a connection's blocking method, awaited; make(connection, result) is its result."""

    @wraps(method)
    async def call(self: Awaits[B], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return make(self, await self.run(partial(method, self.blocking, *args, **kwargs)))

    return call
