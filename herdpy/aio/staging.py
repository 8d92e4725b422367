"""AsyncStage: a Stage whose calls are awaited. One task at a time."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from herdpy.driver.staging import Stage, StageToken

T = TypeVar("T")


class _Owner(Protocol):
    def run(self, body: Callable[[], T]) -> Coroutine[Any, Any, T]: ...


class AsyncStage:
    """What AsyncConnection.stage() gives; an async context manager that gives up."""

    def __init__(self, owner: _Owner, stage: "Stage") -> None:
        self._owner = owner
        self._stage = stage

    @property
    def job(self) -> str:
        return self._stage.job

    @property
    def row_count(self) -> int:
        """Rows staged so far."""
        return self._stage.row_count

    async def add(self, data: Any) -> int:
        """Stage rows; return how many there are now."""
        return await self._owner.run(lambda: self._stage.add(data))

    async def finish(self) -> "StageToken":
        """Make the rows durable and return what commit_staging() takes."""
        return await self._owner.run(self._stage.finish)

    async def abort(self) -> None:
        """Give the rows up; nothing to do behind finish(). Repeatable."""
        await self._owner.run(self._stage.abort)

    async def __aenter__(self) -> "AsyncStage":
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.abort()
