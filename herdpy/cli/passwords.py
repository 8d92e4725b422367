"""Passwords of the command line: for a URL that names a user, and a server that asks for one.

In this order: the URL's, HERDPY_PASSWORD, the password file (HERDPY_PASSFILE, else
~/.herdpy/passwords), the terminal. A line of the file is host:port:tablespace:user:password; a `*`
alone stands for every value, a backslash comes before a colon or backslash in one, and the first
line that fits counts. A file that others can read or change is refused. docs/reference/url.md.
"""

import os
import sys
from collections.abc import Callable, Mapping
from getpass import getpass
from pathlib import Path
from typing import Any

from bookie.runtime.os_input_files import exposed_mode
from herdpy.driver.connection import Connection, connect
from herdpy.driver.dsn import RemoteTarget, parse_target
from herdpy.errors import Error, OperationalError

PASSWORD_VARIABLE = "HERDPY_PASSWORD"  # noqa: S105 - a name
FILE_VARIABLE = "HERDPY_PASSFILE"
_FIELDS = 5
_HOW = f"{FILE_VARIABLE} names another one; its lines are host:port:tablespace:user:password."


def connect_here(target: str, **options: Any) -> Connection:
    """Open what a command names, with the password that is found here; herdpy.Error."""
    ask = getpass if sys.stdin.isatty() else None
    return connect_with(target, os.environ, ask, **options)


def connect_with(
    target: str,
    environment: Mapping[str, str],
    ask: Callable[[str], str] | None,
    **options: Any,
) -> Connection:
    """Open a target; ask(question) returns what is typed unseen, None: no terminal.

    A server that lets the user in without a password, as by a certificate, asks for none.
    """
    parsed = parse_target(target)
    if not isinstance(parsed, RemoteTarget) or not parsed.user or parsed.password is not None:
        return connect(target, **options)
    password = environment.get(PASSWORD_VARIABLE)
    if password is None:
        password = _password_in_file(parsed, environment)
    if password is not None:
        return connect(target, password=password, **options)
    try:
        return connect(target, **options)
    except OperationalError as error:
        if ask is None or error.sqlstate != "28000":
            raise
    try:
        password = ask(f"password of {parsed.user} at {parsed.where}: ")
    except EOFError:
        raise OperationalError("no password was typed", sqlstate="28000") from None
    return connect(target, password=password, **options)


def _password_in_file(target: RemoteTarget, environment: Mapping[str, str]) -> str | None:
    """Return the password of the first line that fits; OperationalError: the file is refused."""
    named = environment.get(FILE_VARIABLE)
    try:
        path = Path(named) if named else Path.home() / ".herdpy" / "passwords"
    except RuntimeError:  # there is no home
        return None
    try:
        with path.open(encoding="utf-8") as file:
            mode = exposed_mode(file)
            if mode is not None:
                raise _refused(
                    path, f"others can read or change it (mode {mode:04o})", f"chmod 600 {path}"
                )
            lines = file.read().splitlines()
    except FileNotFoundError as error:
        if named:
            raise _refused(
                path, error.strerror or "it is not there", f"{FILE_VARIABLE} names it."
            ) from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _refused(path, reason or "it cannot be read", _HOW) from None
    wanted = (target.host, str(target.port), target.tablespace, target.user)
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = _fields_of(line)
        if len(fields) != _FIELDS:
            raise _refused(
                path,
                f"line {number} has {len(fields)} fields",
                "expected host:port:tablespace:user:password",
            )
        pairs = zip(fields[:-1], wanted, strict=True)
        if all(field in ("*", value) for field, value in pairs):
            return fields[-1]
    return None


def _fields_of(line: str) -> list[str]:
    """Return what colons part; a backslash takes away the meaning of the character behind it."""
    fields, characters = [""], iter(line)
    for character in characters:
        if character == ":" and len(fields) < _FIELDS:
            fields.append("")
        elif character == "\\":
            fields[-1] += next(characters, "\\")
        else:
            fields[-1] += character
    return fields


def _refused(path: Path, reason: str, hint: str) -> Error:
    return OperationalError(f"password file {path}: {reason}", sqlstate="F0000", hint=hint)
