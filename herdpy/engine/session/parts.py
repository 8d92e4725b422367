"""SessionPart: what a session is composed of beside its core; and calls that are statements."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

from herdpy.engine.session.core import SessionCore
from herdpy.engine.session.planner import Planner
from herdpy.engine.session.runner import StatementRunner


class SessionPart:
    """Calls of a session about one thing; what they share."""

    def __init__(self, core: SessionCore, runner: StatementRunner, planner: Planner) -> None:
        self._core = core
        self._database = core.database
        self._tablespace = core.tablespace
        self._runner = runner
        self._planner = planner


S = TypeVar("S", bound=SessionPart)
T = TypeVar("T")
P = ParamSpec("P")


def statement(
    text: str,
) -> Callable[[Callable[Concatenate[S, P], T]], Callable[Concatenate[S, P], T]]:
    """Make each call of a method one statement; sysstatements shows text.format(its arguments)."""

    def decorate(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
        @wraps(method)
        def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return self._runner.run(partial(method, self, *args, **kwargs), text.format(*args))

        return run

    return decorate
