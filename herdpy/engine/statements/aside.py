"""run_aside(): a long call of another library, while the thread that asks for it hears signals.

Python runs a signal's handler in the main thread, between two of its own instructions: while DuckDB
plans a query there, Ctrl-C would have to wait for it.
"""

from collections.abc import Callable
from typing import TypeVar

from bookie.runtime.interfaces import Driver
from bookie.runtime.ticket import Ticket

T = TypeVar("T")
_STOP_AGAIN_S = 0.01


def run_aside(driver: Driver, call: Callable[[], T], stop: Callable[[], object]) -> T:
    """Return what call() returns or raises, which another thread runs.

    An interrupt is raised when the call has ended, which stop() asks it to, again and again.
    """
    done: Ticket[None] = Ticket()
    values: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            values.append(call())
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            errors.append(error)
        finally:
            done.complete(None)

    worker = driver.spawn("herdpy-planning", work)
    interrupt: BaseException | None = None
    while not done.is_done:
        try:
            if interrupt is None:
                driver.wait(done)
            else:
                stop()
                worker.join(_STOP_AGAIN_S)
        except BaseException as error:  # noqa: BLE001 - raised below
            interrupt = interrupt or error
    worker.join()
    if interrupt is not None:
        raise interrupt
    if errors:
        raise errors[0]
    return values[0]
