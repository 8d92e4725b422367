"""`bookie scrub …`: the check of a bookie's entries: how far it is, begin it, or do it offline."""

import contextlib
import http.client
import json
import ssl
import sys
from collections.abc import Callable, Generator
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

import click

from bookie.admin.output import Output, bytes_text
from bookie.admin.world import client_context, json_option
from bookie.config import parse_ledger_directory
from bookie.errors import (
    BookieStartError,
    BookieUnavailableError,
    CorruptFileError,
    IllegalOperationError,
    IncorrectParameterError,
)
from bookie.hosting import INDEX_FILE
from bookie.management.http_client import Url
from bookie.runtime.interfaces import DiskLockedError
from bookie.runtime.os_disk import OsDisk
from bookie.server.node import LOCK_FILE
from bookie.server.storage import entry_log
from bookie.server.storage.directories import LedgerDirectory
from bookie.server.storage.entry_logs import EntryLogs
from bookie.server.storage.entry_reads import EntryCheck, problem_of
from bookie.server.storage.lmdb_index import LmdbIndex

_PATH = "/api/v1/bookie/scrub"
_TIMEOUT_S = 30.0
_ANSWER_BYTES_MAX = 64 * 1024 * 1024
_STEP_BYTES = 4 * 1024 * 1024
_BAD = (
    "ledger_id", "lost_count", "lost", "unreadable_count", "unreadable", "unmended_count",
    "unmended", "reason",
)  # fmt: skip


@click.group()
def scrub() -> None:
    """Check the entries of a bookie against their CRCs, digests and metadata."""


def _http_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command URL and how to be let in."""
    for option in (
        click.option(
            "--tls-trust",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="PEM file: the bookie's certificate is signed by these.",
        ),
        click.option(
            "--tls",
            nargs=2,
            type=click.Path(exists=True, dir_okay=False),
            metavar="CERTIFICATE KEY",
            help="PEM files: shown to the bookie. Needs --tls-trust.",
        ),
        click.option(
            "--token",
            envvar="BOOKIE_HTTP_TOKEN",
            show_envvar=True,
            help="A token to which the bookie's --http-access gives a role.",
        ),
        click.argument("url"),
    ):
        command = option(command)
    return json_option(command)


@scrub.command()
@_http_options
def status(
    output: Output,
    url: str,
    token: str | None,
    tls_trust: str | None,
    tls: tuple[str, str] | None,
) -> None:
    """Ask the running bookie at URL (http://host:port of its --http-port) what its scrub found.

    Exit code 1 when entries are lost or could not be mended.
    """
    found = _ask("GET", url, token, client_context(tls_trust, tls))
    _print_status(output, found)
    sys.exit(1 if found["bad_ledger_count"] else 0)


@scrub.command()
@_http_options
def start(
    output: Output,
    url: str,
    token: str | None,
    tls_trust: str | None,
    tls: tuple[str, str] | None,
) -> None:
    """Let the running bookie at URL check all its entries now, and mend what is damaged.

    Needs the role admin. A check that is under way goes on where it is: what it has gone through is
    not checked again. Begin another one when it has ended.
    """
    found = _ask("PUT", url, token, client_context(tls_trust, tls))
    begins = "it checks all entries"
    if not found["is_begun"]:
        done, total = found["ledgers_done"], found["ledgers_total"]
        begins = f"a check is under way and goes on, {done} of {total} ledgers are done"
    output.record(
        {"is_begun": found["is_begun"]}, f"{begins}; `bookie scrub status` tells how far it is"
    )


def _print_status(output: Output, found: dict[str, Any]) -> None:
    bad: list[dict[str, object]] = found["bad_ledgers"]
    logs: list[dict[str, object]] = found["damaged_logs"]
    if output.is_json:
        output.record(found)
        return
    lists = ("bad_ledgers", "damaged_logs")
    output.record({name: value for name, value in found.items() if name not in lists})
    if logs:
        output.records(logs, ("log_number", "problem"), "")
    output.records(bad, _BAD, "no entry is lost, and none waits to be mended")


def _ask(
    method: str, url: str, token: str | None, context: ssl.SSLContext | None
) -> dict[str, Any]:
    """Return the answer's JSON; BookieUnavailableError, IllegalOperationError with its reason.

    No redirect is followed and no proxy asked: the token goes to no other.
    """
    try:
        at = Url.of(url)
    except IncorrectParameterError as error:
        raise click.BadParameter(
            "expected http://host:port or https://…, the HTTP port of a bookie (--http-port)",
            param_hint="URL",
        ) from error
    headers = {"Connection": "close"}
    if token is not None:
        if not token or not all("!" <= character <= "~" for character in token):
            raise click.BadParameter(
                "expected ASCII characters without blanks, as in the bookie's --http-access, found "
                "others",
                param_hint="--token",
            )
        headers["Authorization"] = f"Bearer {token}"
    path = f"{at.path.rstrip('/')}{_PATH}"
    connection = (
        http.client.HTTPConnection(at.host, at.port, timeout=_TIMEOUT_S)
        if at.scheme == "http"
        else http.client.HTTPSConnection(at.host, at.port, timeout=_TIMEOUT_S, context=context)
    )
    try:
        connection.request(method, path, b"{}" if method == "PUT" else None, headers)
        with connection.getresponse() as answer:
            status, content = answer.status, answer.read(_ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException, ValueError) as error:  # IDNA's is a ValueError
        reason = str(error) or type(error).__name__
        raise BookieUnavailableError(
            f"{at.origin}: {reason}; expected the HTTP port of a running bookie (--http-port), and "
            "https:// where it has --http-tls"
        ) from error
    finally:
        connection.close()
    try:
        found: Any = json.loads(content)
    except ValueError:
        found = None
    said = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if status != HTTPStatus.OK or "bad_ledger_count" not in said:
        reason = said.get("message") or "expected the HTTP port of a bookie with --http-access"
        raise IllegalOperationError(f"{method} {at.origin}{path}: {status}, {reason}")
    return said


@scrub.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--ledgers",
    multiple=True,
    metavar="DIRECTORY",
    help="As the bookie's own. May be repeated.  [default: DATA]",
)
@json_option
def check(output: Output, data: Path, ledgers: tuple[str, ...]) -> None:
    """Read every entry of the stopped bookie in DATA, as its index locates them.

    Verified are the CRCs and ids of the records. What metadata has to say, the writers' digests and
    entries that should be here, a running bookie checks; so it does with what only its journal has.
    Damage is printed and makes the exit code 1. Nothing is mended: a running bookie does that.
    """
    with _opened(data, ledgers) as (index, logs):
        ledger_ids = list(index.ledger_ids())
        entries = byte_count = damaged = 0
        with output.progress("ledgers", len(ledger_ids)) as progress:
            for done, ledger_id in enumerate(ledger_ids):
                progress.to(done)
                entry_check = EntryCheck(index, logs, ledger_id)
                is_last = False
                while not is_last:
                    step = entry_check.step(_STEP_BYTES)
                    entries += step.entry_count
                    byte_count += step.byte_count
                    damaged += len(step.damaged)
                    is_last = step.is_last
                    for entry_id in step.damaged:
                        problem = problem_of(index, logs, ledger_id, entry_id, None) or "-"
                        found: dict[str, object] = {
                            "ledger_id": ledger_id, "entry_id": entry_id, "problem": problem,
                        }  # fmt: skip
                        output.record(found, f"ledger {ledger_id} entry {entry_id}: {problem}")
    output.record(
        {
            "ledgers": len(ledger_ids), "entries": entries, "bytes": byte_count, "damaged": damaged,
        },
        f"{len(ledger_ids)} ledgers, {entries} entries, {bytes_text(byte_count)} read, "
        f"{damaged} entries are damaged",
    )  # fmt: skip
    sys.exit(1 if damaged else 0)


@contextlib.contextmanager
def _opened(data: Path, ledgers: tuple[str, ...]) -> Generator[tuple[LmdbIndex, EntryLogs]]:
    """Open index and logs of a stopped bookie for the block; BookieStartError: it runs."""
    paths = list(dict.fromkeys(Path(parse_ledger_directory(text)[0]) for text in ledgers)) or [data]
    if not (data / INDEX_FILE).exists():
        raise CorruptFileError(
            f"{data}: expected {INDEX_FILE}, found none; name the --data of a bookie. If it was "
            "lost, the next start makes it anew from the entry logs"
        )
    for path in paths:
        if not (path / entry_log.DIRECTORY).is_dir():
            raise CorruptFileError(
                f"{path}: expected the folder {entry_log.DIRECTORY}, found none; give all "
                "--ledgers of the bookie"
            )
    with contextlib.ExitStack() as stack:
        for path in dict.fromkeys((data, *paths)):
            try:
                lock = OsDisk(path).lock(LOCK_FILE, "bookie scrub check")
            except DiskLockedError as error:
                raise BookieStartError(
                    f"{path}/{LOCK_FILE} is held by {error.owner or '?'}: expected a stopped "
                    "bookie; stop it, or let it check itself (bookie scrub start)"
                ) from error
            stack.callback(lock.close)
        index = stack.enter_context(contextlib.closing(LmdbIndex(str(data / INDEX_FILE))))
        if not index.is_whole:
            raise CorruptFileError(
                f"{data / INDEX_FILE}: expected the index of a bookie that has served, found a new "
                "one; the next start makes it anew from the entry logs"
            )
        logs = EntryLogs([LedgerDirectory(OsDisk(path), str(path)) for path in paths])
        stack.callback(logs.close)
        logs.open()
        yield index, logs
