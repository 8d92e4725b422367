"""Ctrl-C while an autocommit statement waits for the disk: the session learns first what came."""

from typing import Any

import pytest

from bookie.runtime.drivers import ThreadDriver
from bookie.runtime.ticket import Ticket
from tests.fixtures.engines import Background, engine, rows, run, table
from tests.fixtures.held_disk import HeldDisk
from tests.sim.disk import SimulatedDisk


class InterruptedDriver(ThreadDriver):
    """Once it is armed, Ctrl-C hits the first wait; at the next one the disk goes on."""

    __slots__ = ("held", "is_armed")

    def __init__(self) -> None:
        super().__init__()
        self.held: HeldDisk | None = None
        self.is_armed = False

    def wait(
        self, ticket: Ticket[Any], deadline: float | None = None, stop: Ticket[Any] | None = None
    ) -> bool:
        if self.held is not None and not ticket.is_done:
            if self.is_armed:
                self.is_armed = False
                raise KeyboardInterrupt
            self.held.release()
        return super().wait(ticket, deadline, stop)


@pytest.mark.parametrize(
    ("text", "parameters", "expected"),
    [
        ("SELECT count(*) FROM t", (), [(2,)]),
        ("SELECT v FROM t WHERE id = ?", (2,), [(20,)]),
        ("SELECT id FROM t WHERE v + 0 = ?", (20,), [(2,)]),
    ],
    ids=["aggregate", "point", "scan"],
)
def test_the_next_statement_sees_what_came_of_it(
    text: str, parameters: tuple[int, ...], expected: list[tuple[int, ...]]
) -> None:
    disk, driver = SimulatedDisk(1), InterruptedDriver()
    with engine(disk=disk, driver=driver, is_threaded=True) as db:
        session = db.session(autocommit=True)
        table(session, (1, 10))
        for _ in range(3):
            rows(session, text, *parameters)  # planned
        other = db.session(autocommit=True)
        run(other, "CREATE TABLE u (id BIGINT PRIMARY KEY)")
        held = HeldDisk(disk)
        held.hold()
        with Background() as background:
            background.start(lambda: run(other, "INSERT INTO u VALUES (1)"))
            held.until_reached()  # what comes now waits for the pass behind this one
            driver.held, driver.is_armed = held, True
            try:
                with pytest.raises(KeyboardInterrupt):
                    run(session, "INSERT INTO t VALUES (2, 20)")
                assert rows(session, text, *parameters) == expected
            finally:
                held.release()
        assert db.locks == {}
