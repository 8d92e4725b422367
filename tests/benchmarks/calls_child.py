"""One warm statement in a fresh process, and every call of a product function that it causes: JSON.

Usage: calls_child.py "WHERE STATEMENT", with a checkout as the current folder and on Python's
path; calls.py starts it, for an older commit, too. It imports of that checkout only the public API
and, for a server in this process, its tests/fixtures/servers.py.

Counted are calls from the moment at which all threads wait until all of them wait again, so what a
server does behind its answer counts, too. A thread that looks after the database by its own clock
does not. Coroutines and generators count whenever they go on.
"""

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

_WARM_COUNT = 60
_QUIET_S = 0.03
_POINT = "SELECT v FROM t WHERE id = ?"
_INSERT = "INSERT INTO t VALUES (?, ?)"
_UPDATE = "UPDATE t SET v = ? WHERE id = ?"
_VECTOR = "SELECT v, count(*) FROM t WHERE id > ? GROUP BY v"
_SYSTEM_CALLS = frozenset({"fsync", "fdatasync", "pwrite", "pwritev", "send"})
_WAITS = frozenset({"poll", "select", "acquire", "recv", "recv_into"})
_BY_THEIR_OWN_CLOCK = ("maintenance",)


class Event(NamedTuple):
    """A call of a product function (kind "call"), of the system, or the begin or end of a wait."""

    thread: int
    kind: str
    file: str
    name: str


def statements(connection: Any) -> dict[str, Callable[[int], object]]:
    """Return what is measured, by name; the number makes each run's keys its own."""
    return {
        "select": lambda n: connection.execute(_POINT, (n % 50,)).fetchall(),
        "insert": lambda n: connection.execute(_INSERT, (1_000 + n, "y")),
        "update": lambda n: connection.execute(_UPDATE, ("z", n % 50)),
        "vector": lambda n: connection.execute(_VECTOR, (n % 50,)).fetchall(),
        "executemany": lambda n: connection.executemany(
            _INSERT, [(10_000 + 3 * n + i, "z") for i in range(3)]
        ),
    }


def _is_wait(frame: Any, function: Any) -> bool:
    """Tell whether a C function may wait for another thread; polling for no time does not."""
    name = getattr(function, "__name__", "")
    if name in ("poll", "select"):
        timeout = frame.f_locals.get("timeout", 1)
        return timeout is None or timeout > 0
    is_queue = name == "get" and type(getattr(function, "__self__", None)).__name__ == "SimpleQueue"
    return is_queue or name in _WAITS


@contextmanager
def recorded(root: Path) -> Iterator[list[Event]]:
    """Give the list to which events are added while the block runs."""
    folders = tuple(f"{root / name}{os.sep}" for name in ("herdpy", "bookie"))
    events: list[Event] = []
    get_ident = threading.get_ident

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            code = frame.f_code
            # Compiled at run time: row functions, methods of dataclasses.
            if code.co_filename.startswith(folders) or code.co_filename == "<string>":
                events.append(Event(get_ident(), "call", code.co_filename, code.co_qualname))
        elif event in ("c_call", "c_return", "c_exception"):
            if _is_wait(frame, argument):
                kind = "wait" if event == "c_call" else "woken"
                events.append(Event(get_ident(), kind, "", argument.__name__))
            elif event == "c_call" and getattr(argument, "__name__", "") in _SYSTEM_CALLS:
                events.append(Event(get_ident(), "system", "", argument.__name__))

    threading.setprofile_all_threads(profile)
    try:
        yield events
    finally:
        threading.setprofile_all_threads(None)


def until_quiet(events: list[Event]) -> None:
    """Wait until no thread has called anything for a moment."""
    count = -1
    while count != len(events):
        count = len(events)
        time.sleep(_QUIET_S)


def changes(events: list[Event]) -> int:
    """Return how often the statement went on in another thread.

    A thread's calls between two waits for others are one stretch, wherever calls of others fall
    among them: that is the scheduler's choice. A wait is one for others if they called something
    meanwhile; of an answer on a socket it does not matter whether it was there already.
    """
    stretches = total = 0
    own: dict[int, int] = {}
    others_before: dict[int, int] = {}
    is_new = {event.thread: True for event in events}
    for event in events:
        thread = event.thread
        others = total - own.get(thread, 0)
        if event.kind == "call":
            if is_new[thread]:
                stretches += 1
                is_new[thread] = False
                others_before[thread] = others
            own[thread] = own.get(thread, 0) + 1
            total += 1
        elif event.kind == "wait" and not event.name.startswith("recv"):
            others_before[thread] = others
        elif event.kind == "woken" and others > others_before.get(thread, 0):
            is_new[thread] = True
    return stretches - 1


def main() -> None:
    where, what = sys.argv[1].split()
    import herdpy

    root = Path(herdpy.__file__).parent.parent
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-calls-")))
        if where == "network":
            from dataclasses import fields

            from bookie.runtime.os_disk import OsDisk
            from herdpy.config import ServerConfig
            from tests.fixtures.servers import running_server

            settings = {"spin_us": 0, "loop_sync_us": 1_000_000}  # whatever this disk takes
            known = {item.name for item in fields(ServerConfig)}  # of an older commit, perhaps
            settings = {name: value for name, value in settings.items() if name in known}
            server = stack.enter_context(running_server(OsDisk(directory), **settings))
            target = f"{server.url}?spin_us=0"
        else:
            target = str(directory)
        connection = herdpy.connect(target, autocommit=True)
        stack.callback(connection.close)
        connection.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
        connection.executemany(_INSERT, [(n, "x") for n in range(60)])
        run = statements(connection)[what]
        for number in range(_WARM_COUNT):
            run(number)
        # Else a thread may lose the interpreter in the midst of a call, and its next one be a wait.
        sys.setswitchinterval(10)
        with recorded(root) as events:
            until_quiet(events)
            events.clear()
            run(_WARM_COUNT)
            until_quiet(events)
        names = {thread.ident or 0: thread.name for thread in threading.enumerate()}
    found = [
        event
        for event in events
        if not any(part in names[event.thread] for part in _BY_THEIR_OWN_CLOCK)
    ]
    shown = [
        (names[each.thread], each.file.removeprefix(f"{root}{os.sep}"), each.name)
        for each in found
        if each.kind in ("call", "system")
    ]
    print(json.dumps({"events": shown, "changes": changes(found)}))


if __name__ == "__main__":
    main()
