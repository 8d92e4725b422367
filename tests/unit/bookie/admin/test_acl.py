"""`bookie acl` and the options of logins, against a real ZooKeeper."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from bookie.admin.app import app
from bookie.admin.world import LOGIN_VARIABLE, read_logins
from bookie.admin.zookeeper_process import ZooKeeperProcess
from bookie.errors import BookieStartError
from bookie.metadata.acl import StoreAccess
from bookie.metadata.service_info import Address, ServiceInfo
from bookie.metadata.zookeeper import ZooKeeperStore
from bookie.metadata.zookeeper_login import parse_logins
from tests.fixtures.zookeeper import zookeeper, zookeeper_root

__all__ = ["zookeeper", "zookeeper_root"]

LINE = "digest herd:geheim"


class Shell:
    """`bookie` with a cluster of its own."""

    def __init__(self, hosts: str, root: str, folder: Path) -> None:
        self.hosts, self.root = hosts, root
        self.login = folder / "login"
        self.login.write_text(LINE)
        self.login.chmod(0o600)

    def run(self, *words: str, logs_in: bool = True, code: int = 0, **env: str) -> Result:
        names = ("--zookeeper", self.hosts, "--root", self.root)
        login = ("--zookeeper-login", str(self.login)) if logs_in else ()
        result = CliRunner().invoke(
            app, [*words, *names, *login], env={LOGIN_VARIABLE: None, **env}
        )
        assert result.exit_code == code, (result.output, result.exception)
        return result

    def records(self, *words: str, **more: Any) -> list[dict[str, Any]]:
        output = self.run(*words, "--json", **more).stdout
        return [json.loads(line) for line in output.splitlines()]


@pytest.fixture
def shell(zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path) -> Shell:
    made = Shell(zookeeper.hosts, zookeeper_root, tmp_path)
    made.run("format")
    return made


def test_secured_and_back(shell: Shell) -> None:
    assert shell.records("acl", "show", logs_in=False) == [
        {"nodes": 5, "deviating": 0, "expected": "open"}
    ]
    *found, last = shell.records("acl", "show", code=1)
    assert found == [{"path": f"{shell.root}/…", "nodes": 5, "acl": "world:anyone:cdrwa"}]
    assert last["deviating"] == 5
    (dry,) = shell.records("acl", "set", "secured", "--dry-run")
    assert (dry["changed"], dry["acl"], dry["is_dry"]) == (5, "digest:herd:…:cdrwa", True)
    assert shell.records("acl", "show", code=1)[-1]["deviating"] == 5
    (done,) = shell.records("acl", "set", "secured", "--yes")
    assert (done["changed"], done["refused"]) == (5, 0)
    shell.run("acl", "show")
    refused = shell.run("ledger", "list", logs_in=False, code=1)
    assert "log in as the user" in refused.stderr
    shell.run("ledger", "list")
    shell.run("ledger", "list", logs_in=False, **{LOGIN_VARIABLE: LINE})
    assert "refused" not in shell.run("acl", "set", "secured", "--yes").output
    shell.run("acl", "set", "open", "--yes")
    shell.run("ledger", "list", logs_in=False)


def test_a_new_cluster_is_secured_from_the_start(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    shell = Shell(zookeeper.hosts, f"{zookeeper_root}/below", tmp_path)
    shell.run("format", "--zk-enable-security")
    shell.run("acl", "show")
    assert "not let this session" in shell.run("acl", "show", logs_in=False, code=1).stderr


def test_set_needs_a_login_and_a_yes(shell: Shell) -> None:
    assert (
        "--zookeeper-login FILE" in shell.run("acl", "set", "secured", logs_in=False, code=1).stderr
    )
    assert "--yes" in shell.run("acl", "set", "secured", code=2).stderr
    found = shell.run("acl", "show", "--expect", "secured", logs_in=False, code=1)
    assert "--zookeeper-login FILE" in found.stderr
    found = shell.run("bookies", "list", "--zk-enable-security", logs_in=False, code=1)
    assert "expected a login" in found.stderr


def test_a_bookie_without_the_login_is_not_locked_out(shell: Shell) -> None:
    logins = parse_logins(LINE, "line")
    access = StoreAccess((logins[0].identity,))

    async def main() -> None:
        store = await ZooKeeperStore.connect(shell.hosts)
        info = ServiceInfo.of_bookie(Address("h", 1))
        await store.create(f"{shell.root}/available/b1:1", info.to_bytes())
        with_login = ServiceInfo.of_bookie(Address("h", 1), None, access)
        await store.create(f"{shell.root}/available/b2:1", with_login.to_bytes())
        await store.close()

    asyncio.run(main())
    refused = shell.run("acl", "set", "secured", "--yes", code=1).stderr
    assert "b1:1; secured nodes would lock them out" in refused
    assert "b2:1" not in refused
    shell.run("acl", "show", "--expect", "open")
    assert "b1:1" in shell.run("acl", "set", "secured", "--dry-run").stderr
    warned = shell.run("acl", "set", "secured", "--yes", "--unchecked").stderr
    assert "go on making open nodes: b2:1" in warned
    shell.run("acl", "show")


def test_nodes_of_another_login_are_named(shell: Shell) -> None:
    async def main() -> None:
        other = await ZooKeeperStore.connect(
            shell.hosts, logins=parse_logins("digest other:x", "line"), is_secured=True
        )
        await other.create(f"{shell.root}/00")
        await other.close()

    asyncio.run(main())
    refused = shell.run("acl", "set", "secured", "--yes", code=1)
    assert (
        f"1 nodes give this session no right to that, the first {shell.root}/00" in refused.stderr
    )
    assert "5 of 6 nodes were changed" in refused.stdout


def test_lines_beyond_the_limit_are_counted(shell: Shell) -> None:
    async def main() -> None:
        store = await ZooKeeperStore.connect(shell.hosts, logins=parse_logins(LINE, "line"))
        for n in range(3):
            await store.create(f"{shell.root}/0{n}")
            await store.create(f"{shell.root}/0{n}/0000")
        secured = await ZooKeeperStore.connect(
            shell.hosts, logins=parse_logins(LINE, "line"), is_secured=True
        )
        for n in range(3):
            await secured.create(f"{shell.root}/0{n}/0001")
            await secured.close() if n == 2 else None
        await store.close()

    asyncio.run(main())
    found = shell.run("acl", "show", "--expect", "open", "--limit", "2", code=1)
    assert found.stdout.count("digest:herd") == 2
    assert "1 more lines" in found.stderr


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, and arguments that it takes."""
    if isinstance(command, click.Group):
        for name, part in command.commands.items():
            yield from leaves(part, (*words, name))
        return
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.required:
            kinds = {"seconds": "10", "state": "secured"}
            is_file = isinstance(parameter.type, click.Path | click.File)
            words += ("FILE" if is_file else kinds.get(parameter.name or "", "1"),)
        elif parameter.required:
            words += (parameter.opts[0], "1")
        elif parameter.name == "is_sure":
            words += ("--yes",)
    yield words


# They ask no ZooKeeper, or set up the log of the whole process (tests/integration has them).
ELSEWHERE = {"local", "inspect", "scrub", "autorecovery", "serve"}
COMMANDS = [words for words in leaves(app) if words[0] not in ELSEWHERE]


def test_every_command_without_the_login_says_what_is_missing(
    zookeeper: ZooKeeperProcess, zookeeper_root: str, tmp_path: Path
) -> None:
    shell = Shell(zookeeper.hosts, zookeeper_root, tmp_path)
    shell.run("format", "--zk-enable-security")
    assert len(COMMANDS) > 25
    file = tmp_path / "cookie"
    file.write_text('5\nbookieHost: "1"\njournalDir: "/j"\nledgerDirs: "1\\t/l"\n')
    more = {("ledger", "create"): ("FILE",)}
    for words in COMMANDS:
        said = [str(file) if word == "FILE" else word for word in (*words, *more.get(words, ()))]
        found = shell.run(*said, logs_in=False, code=1)
        assert "--zookeeper-login FILE" in found.stderr, words


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        (LINE, 0o644, "chmod 600"),
        ("nonsense geheim", 0o600, "line 1: expected `digest"),
        ("", 0o600, "found none"),
    ],
)
def test_a_file_that_is_no_login_is_refused(
    tmp_path: Path, text: str, mode: int, said: str
) -> None:
    path = tmp_path / "login"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(BookieStartError, match=said) as found:
        read_logins(path)
    assert "geheim" not in str(found.value)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "login"
    path.write_bytes(b"digest a:\xff")
    path.chmod(0o600)
    with pytest.raises(BookieStartError, match="UTF-8"):
        read_logins(path)


def test_a_login_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOGIN_VARIABLE, raising=False)
    assert read_logins(None) == ()
    monkeypatch.setenv(LOGIN_VARIABLE, LINE)
    assert read_logins(None)[0].user == "herd"
    monkeypatch.setenv(LOGIN_VARIABLE, "herd:geheim")
    with pytest.raises(BookieStartError, match=LOGIN_VARIABLE) as found:
        read_logins(None)
    assert "geheim" not in str(found.value)
