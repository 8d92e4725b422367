"""KeyboardInterrupt at every line of the driver: nothing stays open, nothing stays locked."""

import gc
import sys

import pytest

import herdpy


class Injector:
    """Raises KeyboardInterrupt when the n-th line of the driver is about to run."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.seen = 0
        self.where = ""

    def __enter__(self) -> "Injector":
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame, event, argument):
        is_driver = "/herdpy/driver/" in frame.f_code.co_filename
        return self._line if is_driver else None

    def _line(self, frame, event, argument):
        if event == "line":
            self.seen += 1
            if self.seen == self.n:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self._line


def one_life(target: str) -> None:
    connection = herdpy.connect(target)
    try:
        if target == ":memory:":  # writes on a disk would take half a minute of fsyncs
            connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY)")
            connection.commit()
            with connection.transaction():
                connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
            assert connection.execute("SELECT id FROM t WHERE id = ?", (1,)).fetchone() == (1,)
        assert connection.execute("SHOW server_encoding").fetchall() == [("UTF8",)]
        connection.close()
    except KeyboardInterrupt:
        try:
            connection.close()  # it goes on, whatever was interrupted
        except herdpy.InterfaceError:
            pass  # the interrupt came behind the last effect of close()
        raise


@pytest.fixture
def quick_collector():
    """Leave out of collections what is there already: hundreds of them follow."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("quick_collector")
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_every_line_of_the_driver(tmp_path, kind) -> None:
    path = str(tmp_path / "data")
    n = 0
    while True:
        n += 1
        try:
            with Injector(n) as injector:
                one_life(":memory:" if kind == "memory" else path)
        except KeyboardInterrupt:
            pass
        if not injector.where:
            break
        gc.collect()  # an interrupted connect() leaves its connection to the collector
        if kind == "memory":
            continue  # the housekeeper of a database left open fails the test, see conftest.py
        try:
            # Works only if the database was closed: its options differ.
            herdpy.connect(path, durability="none").close()
        except herdpy.Error as error:
            pytest.fail(f"interrupted at {injector.where}: {error}")
    assert n > 50, f"{n} lines: the driver has more lines than that: the injector does not see them"
