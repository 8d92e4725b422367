"""The keeper of an application's leases: which are shared, renewed and released. Without Spark."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

import herdpy
from pyspark_herdpy import keeper
from pyspark_herdpy.keeper import (
    HELD_MAX,
    RENEWED_MAX,
    REQUEST_BYTES_MAX,
    Book,
    Held,
    Life,
    Renewals,
    login_of,
)
from pyspark_herdpy.leases import FRAMES_MAX, first_named
from tests.fixtures.served import Served

URL = "herd://localhost:7000/default"


def book_of(*leases: str, seconds: float = 600, now_s: float = 0) -> Book:
    book = Book()
    for lease in leases:
        book.note(Held(lease, URL, None, seconds, now_s))
    return book


def test_the_last_lease_of_the_same_user_is_shared() -> None:
    book = book_of("a", "b")
    assert book.shareable(URL, None, 600) == "b"
    assert book.shareable(URL, None, 601) is None
    assert book.shareable(URL, "a password", 600) is None
    assert book.shareable(URL + "?timeout_s=1", None, 600) is None
    book.note(Held("a", URL, None, 600, 1))
    assert book.shareable(URL, None, 60) == "a"
    book.forget(["a", "b", "c"])
    assert book.shareable(URL, None, 60) is None


def test_leases_are_due_at_a_third_of_their_seconds() -> None:
    book = book_of("a", seconds=600, now_s=1000)
    book.note(Held("b", URL, None, 60, 1000))
    assert book.wait_s(1000) == 20
    assert book.due(1019) == []
    assert [held.lease for held in book.due(1020)] == ["b"]
    assert [held.lease for held in book.due(1200)] == ["a", "b"]
    assert book.wait_s(1300) == 0
    assert Book().wait_s(0) is None


def test_only_the_last_ones_are_renewed() -> None:
    book = book_of(*(f"l{n}" for n in range(RENEWED_MAX + 5)))
    assert [held.lease for held in book.due(10_000)] == [f"l{n + 5}" for n in range(RENEWED_MAX)]
    book.note(Held("l0", URL, None, 600, 0))  # used again
    assert [held.lease for held in book.renewed()][-1] == "l0"
    assert book.of_server(URL)[-1] == "l0"
    assert len(book.of_server(URL)) == RENEWED_MAX + 5


def test_a_data_frame_has_the_first_lease_that_one_of_its_plans_named(tmp_path: Path) -> None:
    """In a file: behind its keeper's death it must not take a newer state."""

    def ask(frame: str, lease: str | None) -> str | None:
        return first_named(tmp_path, os.getpid(), frame, lease)

    assert [ask("a", lease) for lease in (None, "l1", "l2", None)] == [None, "l1", "l1", "l1"]
    assert ask("b", "l2") == "l2"
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    (tmp_path / f"{ended.pid}.frames").touch()
    (file,) = (path for path in tmp_path.iterdir() if path.stat().st_size)
    with file.open("a") as frames:
        frames.writelines(f"{number} l\n" for number in range(FRAMES_MAX - 2))
    assert ask("c", "l3") == "l3"
    assert [ask(frame, None) for frame in "abc"] == [None, "l2", "l3"]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("torn", ["b", "b l", "b l2 c\n", "\n\n", "b\n"])
def test_a_file_of_leases_that_a_killed_planner_was_writing(torn: str, tmp_path: Path) -> None:
    assert first_named(tmp_path, os.getpid(), "a", "l1") == "l1"
    with (tmp_path / f"{os.getpid()}.frames").open("a") as file:
        file.write(torn)
    assert first_named(tmp_path, os.getpid(), "b", None) is None
    assert first_named(tmp_path, os.getpid(), "b", "l3") == "l3"
    for frame, lease in (("a", "l1"), ("b", "l3")):
        assert first_named(tmp_path, os.getpid(), frame, "l4") == lease


def test_what_is_remembered_fits_in_a_request() -> None:
    """An application that loads at ever new states for months: most of its leases have ended."""
    book = book_of(*(f"{number:032x}" for number in range(HELD_MAX + 5)))
    leases = book.of_server(URL)
    assert leases == [f"{number + 5:032x}" for number in range(HELD_MAX)]
    assert len(json.dumps({"do": "forget", "leases": leases})) < REQUEST_BYTES_MAX
    book.answer({"do": "forget", "leases": leases}, 0)
    assert list(book) == []


def test_leases_are_those_of_a_server_and_a_user_whatever_else_a_url_says() -> None:
    ann = URL.replace("//", "//ann@")
    assert login_of(ann + "?timeout_s=3") == login_of(ann.replace("ann", "ann:a%20word"))
    others = (URL, ann.replace("7000", "7001"), ann.replace("ann", "bob"), ann + "2")
    assert login_of(ann) not in map(login_of, others)
    nodes = "herd://ann@a:7000,b:7000/t"
    assert login_of(nodes) == login_of(nodes.replace("a:", "A:") + "?tls=off")
    assert login_of(nodes) != login_of(nodes.replace("b:7000", "b:7001"))


@pytest.mark.parametrize("request_", [{}, {"do": "dance"}, {"do": "note"}, [], 7, {"do": "share"}])
def test_what_is_no_request_is_an_error(request_: Any) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        book_of().answer(request_, 0)


def test_renewing_forgets_what_is_gone_and_keeps_what_is_away(
    server: Served, conn: herdpy.Connection
) -> None:
    alive, gone = conn.lease(60), conn.lease(60)
    gone.release()
    book = Book()
    for lease in (alive.id, gone.id):
        book.note(Held(lease, server.url, None, 60, 0))
    away = "herd://127.0.0.1:1/default?retry_timeout_s=0"
    book.note(Held("c", away, None, 60, 0))
    renewals = Renewals(book)
    renewals.begin(20)
    wait(renewals.running.values())
    renewals.forget_gone()
    assert [(held.lease, held.renewed_s) for held in book] == [(alive.id, 20), ("c", 20)]
    renewals.release_all()
    assert conn.execute("SELECT count(*) FROM sysleases").fetchone() == (0,)


def test_a_server_that_says_nothing_holds_up_no_lease_of_another(
    server: Served, conn: herdpy.Connection
) -> None:
    gone = conn.lease(60)
    gone.release()
    book = Book()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"herd://127.0.0.1:{silent.getsockname()[1]}/default?retry_timeout_s=0"
        book.note(Held("silent", url, None, 60, 0))
        book.note(Held(gone.id, server.url, None, 60, 0))
        renewals = Renewals(book)
        renewals.begin(20)
        wait([renewals.running[gone.id]])
        renewals.begin(20)
        assert not renewals.running["silent"].done()
        assert [held.lease for held in book] == ["silent"]
    renewals.release_all()


def test_a_process_that_is_over_is_seen() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    life = Life(child.pid)
    assert not life.is_over
    child.communicate()
    assert life.is_over
    life.close()
    again = Life(child.pid)  # it is reaped: there is no such process
    assert again.is_over
    again.close()


def test_it_serves_while_the_process_lives_and_releases_behind_it(
    server: Served, conn: herdpy.Connection, tmp_path: Path
) -> None:
    path = tmp_path / "s"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    kept = subprocess.Popen(
        [sys.executable, "-P", keeper.__file__, str(path), str(child.pid)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert kept.stdout is not None
    assert kept.stdout.readline() == b"ready\n"
    lease = conn.lease(600)
    said = {"url": server.url, "password": None, "seconds": 600}

    def ask(request: Any) -> Any:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as call:
            call.connect(str(path))
            call.sendall(json.dumps(request).encode() + b"\n")
            with call.makefile("rb") as lines:
                return json.loads(lines.readline())

    assert ask({**said, "do": "share"}) == {"lease": None}
    assert ask({**said, "do": "note", "lease": lease.id}) == {}
    assert ask({**said, "do": "share"}) == {"lease": lease.id}
    assert "error" in ask({"do": "dance"})
    assert ask({"do": "leases", "url": server.url}) == {"leases": [lease.id]}
    child.communicate()
    kept.communicate()
    assert kept.returncode == 0
    assert not path.exists()
    assert conn.execute("SELECT count(*) FROM sysleases").fetchone() == (0,)
