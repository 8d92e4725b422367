"""`herdpy serve` as a process: SIGHUP, the audit log and its rotation, and no secret anywhere."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import herdpy
from tests.fixtures.authorities import Authority
from tests.fixtures.ports import own_port

pytestmark = pytest.mark.integration

FILE = """
[server]
log_format = "json"
log_level = "{level}"
slow_statement_s = 1e-9
login_failure_delay_s = 0.001
drain_timeout_s = 1
audit_log = "{audit}"
{more}
"""
PASSWORDS = [f"geheim{number}" for number in range(20)]


class Served:
    """A server as a process; its log is read line by line."""

    def __init__(
        self, directory: Path, listener: socket.socket, more: str = "", reader: int = -1
    ) -> None:
        """reader: of the audit log, where that is a pipe."""
        self.directory = directory
        self.port, self.grpc_port = own_port(), own_port()
        self.audit = directory / "audit.jsonl"
        self.reader = reader
        self.file = directory / "h.toml"
        self.more = more
        self.log: list[str] = []
        self.configure("debug")
        environment = os.environ | {
            "NOTIFY_SOCKET": str(directory / "n"),
            "HERDPY_CONFIG": str(self.file),
            "HERDPY_SERVER_PORT": str(self.port),
            "HERDPY_SERVER_GRPC_PORT": str(self.grpc_port),
        }
        command = [sys.executable, "-m", "herdpy.cli", "serve", str(directory / "data")]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert listener.recv(4096).startswith(b"READY=1"), self.process.communicate()

    def configure(self, level: str, more: str = "") -> None:
        text = FILE.format(level=level, audit=self.audit, more=more + self.more)
        self.file.write_text(text)

    def hang_up(self) -> str:
        """Send SIGHUP and return what the log says of it, at its end."""
        self.process.send_signal(signal.SIGHUP)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            message: str = json.loads(line)["message"]
            if message.startswith("reload"):
                return message
        raise AssertionError("the server has ended")

    def events(self, path: Path | None = None, until: str = "") -> list[dict[str, Any]]:
        """Return what the audit log says, once it says this, which it does a moment later."""
        while until not in (text := (path or self.audit).read_text()) or text[-1:] not in "\n":
            pass
        return [json.loads(line) for line in text.splitlines()]

    def stop(self) -> str:
        """End it; return all that it has said."""
        self.process.send_signal(signal.SIGTERM)
        output, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return "".join(self.log) + output + errors


@pytest.fixture
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.settimeout(60)
        more = ""
        if getattr(request, "param", None) == "tls":
            identity = Authority(tmp_path, "ours").issue("server", "127.0.0.1")
            more = f'tls_certificate = "{identity.certificate}"\ntls_key = "{identity.key}"\n'
        reader = -1
        if getattr(request, "param", None) == "fifo":
            os.mkfifo(tmp_path / "audit.jsonl")
            reader = os.open(tmp_path / "audit.jsonl", os.O_RDONLY | os.O_NONBLOCK)
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4_096)
        found = Served(tmp_path, listener, more, reader)
        try:
            yield found
        finally:
            found.process.kill()
            found.process.communicate()
            if reader >= 0:
                os.close(reader)


def connect(served: Served, user: str = "", password: str | None = None, options: str = "") -> Any:
    at = f"{user}@" if user else ""
    target = f"herd://{at}127.0.0.1:{served.port}/?retry_timeout_s=0{options}"
    return herdpy.connect(target, password=password, autocommit=True)


@pytest.mark.parametrize("served", ["tls"], indirect=True)
def test_certificates_and_settings_are_read_again(served: Served, tmp_path: Path) -> None:
    options = f"&tls=on&tls_authority={tmp_path / 'ours-ca.pem'}"
    with connect(served, options=options) as before:
        new = Authority(tmp_path, "new")
        new.issue("server", "127.0.0.1")  # in place of the old one
        served.configure("warning", 'http_host = "127.0.0.2"\n')
        assert served.hang_up() == "reload: these count from the next start on: http_host"
        assert before.execute("SELECT 1").fetchall() == [(1,)]
        with pytest.raises(herdpy.OperationalError, match="not trusted"):
            connect(served, options=options)
        connect(served, options=f"&tls=on&tls_authority={new.path}").close()
    served.file.write_text("[server]\nlog_level = 'loud'\n")
    assert served.hang_up().startswith("reload: settings and certificates stay as they were")
    (tmp_path / "server.pem").write_text("none")
    served.configure("info")
    assert "server.pem" in served.hang_up()
    connect(served, options=f"&tls=on&tls_authority={new.path}").close()
    names = [event["event"] for event in served.events(until="tls_failed")]
    assert names.count("certificates_reloaded") == 1
    assert names.count("tls_failed") == 1
    said = [json.loads(line) for line in served.stop().splitlines() if line.startswith("{")]
    slow = [record["level"] for record in said if record["message"] == "slow statement"]
    assert set(slow) <= {"warning"}


def test_the_audit_log_goes_on_in_a_new_file(served: Served) -> None:
    with connect(served) as connection:
        connection.execute("CREATE TABLE t (id BIGINT)")
        old = served.directory / "audit.1"
        served.audit.rename(old)
        served.configure("info")
        assert served.hang_up() == "reloaded"
        connection.execute("DROP TABLE t")
    changed = [
        [
            event["statement"]
            for event in served.events(path, "changed")
            if event["event"] == "changed"
        ]
        for path in (old, served.audit)
    ]
    assert changed == [["CREATE TABLE t (id BIGINT)"], ["DROP TABLE t"]]
    assert served.audit.stat().st_mode & 0o777 == old.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("served", ["fifo"], indirect=True)
def test_no_one_waits_for_who_reads_the_audit_log(served: Served) -> None:
    query = "SELECT name, used > 0, refused FROM syslimits WHERE name LIKE '%_waiting_bytes'"
    limits: list[tuple[object, ...]] = []

    def log_in() -> None:
        for _ in range(40):  # which is more than the pipe takes
            connect(served).close()
        with connect(served) as connection:
            connection.execute("CREATE TABLE t (id BIGINT)")
            limits.extend(connection.execute(query).fetchall())

    one = threading.Thread(target=log_in, daemon=True)
    one.start()
    one.join(60)
    assert not one.is_alive(), "the server waits for the audit log's reader"
    assert sorted(limits)[0] == ("audit_waiting_bytes", True, 0)
    assert [name for name, *_ in sorted(limits)] == ["audit_waiting_bytes", "log_waiting_bytes"]
    found = b""
    while found.count(b"changed") < 1:
        try:
            found += os.read(served.reader, 65_536)
        except BlockingIOError:
            continue
    names = [json.loads(line)["event"] for line in found.splitlines(keepends=True)
             if line.endswith(b"\n")]  # fmt: skip
    assert names.count("login") == 41
    served.stop()


def statements(passwords: list[str]) -> list[str]:
    """Return ways to say a password that end well or badly."""
    named = iter(passwords)
    return [
        f"CREATE USER a PASSWORD '{next(named)}'",
        f"ALTER USER a PASSWORD '{next(named)}' NONSENSE",
        f"ALTER USER a PASSWORD '{next(named)}",
        f"ALTER USER a PASSWORD {next(named)}",
        f'ALTER USER a PASSWORD "{next(named)}"',
        f"ALTER USER a PASSWORD 'a' {next(named)}",
        f"ALTER USER a PASWORD '{next(named)}'",
        f"/* it's /* me */ */ CREATE /**/ USER b ENCRYPTED PASSWORD/**/'{next(named)}'",
        f"/* hidden */ CREATE ROLE c PASSWORD '{next(named)}'",
        f"CREATE ROLE d PASSWORD '{next(named)}' VALID UNTIL 'soon'",
        f"EXPLAIN CREATE USER e PASSWORD '{next(named)}'",
        f"CREATE USER a PASSWORD '{next(named)}'",  # there is one already
    ]


def test_no_secret_is_shown_anywhere(served: Served) -> None:
    said: list[str] = []
    texts = statements(PASSWORDS)
    with connect(served) as root:
        for text in texts:
            try:
                root.execute(text)
            except herdpy.Error as error:
                said += [str(error), repr(error), repr(error.args)]
        root.execute("CREATE USER boss SUPERUSER PASSWORD ?", (PASSWORDS[-1],))
        root.execute("GRANT c TO a")
        for table in ("sysusers", "sysroles", "sysmembers", "sysgrants", "sysclients",
                      "sysstatements"):  # fmt: skip
            said.append(str(root.execute(f"SELECT * FROM {table}").fetchall()))
        said.append(repr(root))
    for user, password in (("boss", "geheim wrong"), ("nobody", PASSWORDS[-2])):
        with pytest.raises(herdpy.OperationalError) as caught:
            connect(served, user, password)
        said += [str(caught.value), repr(caught.value)]
    with pytest.raises(herdpy.OperationalError):
        connect(served, "a", PASSWORDS[0] + "?")
    with connect(served, "boss", PASSWORDS[-1]) as boss:
        said.append(repr(boss))
        with pytest.raises(herdpy.ProgrammingError):
            boss.execute("KILL STATEMENT 123456789")
        boss.execute(f"ALTER USER boss PASSWORD '{PASSWORDS[-3]}'")
        boss.backup(served.directory / "backup")
        boss.dump(served.directory / "dump")
    with connect(served, "a", PASSWORDS[0]) as a, pytest.raises(herdpy.Error):
        a.execute("CREATE TABLE t (id BIGINT)")
    grpc = f"herd+grpc://boss@127.0.0.1:{served.grpc_port}"
    with herdpy.connect(grpc, password=PASSWORDS[-3]) as boss:
        boss.execute("SELECT 1")
    log = served.stop()
    said.append(log)
    paths = [path for path in served.directory.rglob("*") if path.is_file()]
    assert {"MANIFEST", "audit.jsonl", "backup", "dump"} <= {path.name for path in paths}
    shown = {path.name: path.read_bytes() for path in paths}
    shown["said"] = "\n".join(said).encode()
    assert [name for name, data in shown.items() if b"geheim" in data] == []
    records = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    slow = [r["statement"] for r in records if r["message"] == "slow statement"]
    assert len(slow) > len(texts)
    assert "SCRAM-SHA-256" not in log + str(slow) + served.audit.read_text()

    events = served.events()
    changed = [event["statement"] for event in events if event["event"] == "changed"]
    assert changed == [
        "CREATE USER a PASSWORD …",
        "CREATE USER b ENCRYPTED PASSWORD …",
        "CREATE ROLE c PASSWORD …",
        "CREATE USER boss SUPERUSER PASSWORD ?",
        "GRANT c TO a",
        "ALTER USER boss PASSWORD …",
    ]
    assert [(e["user"], e["reason"]) for e in events if e["event"] == "login_failed"] == [
        ("boss", "wrong password"),
        ("nobody", "there is no such user"),
        ("a", "wrong password"),
    ]
    logins = [event["user"] for event in events if event["event"] == "login"]
    assert logins == ["", "boss", "a", "boss"]
    [denied] = [event for event in events if event["event"] == "denied"]
    assert (denied["user"], denied["statement"]) == ("a", "CREATE TABLE t (id BIGINT)")
    exported = [event["kind"] for event in events if event["event"] == "exported"]
    assert exported == ["backup", "dump"]
