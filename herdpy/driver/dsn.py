"""What connect()'s target names: memory, a directory, or a server: docs/reference/url.md."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from urllib.parse import parse_qsl, unquote, urlsplit

from herdpy.errors import InterfaceError, NotSupportedError

MEMORY = ":memory:"
DEFAULT_PORT = 7000
DEFAULT_GRPC_PORT = 7001
DEFAULT_TABLESPACE = "default"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True, slots=True)
class Target:
    """`path` is the real, absolute path of the directory, None for a database in memory."""

    path: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTarget:
    """A server, and what its URL asks for."""

    host: str
    port: int
    tablespace: str
    connect_timeout_s: float = 10.0
    application_name: str = ""
    is_grpc: bool = False
    retry_timeout_s: float = 10.0
    """How long a lost connection is tried to be made anew; 0: it stays lost."""

    @property
    def where(self) -> str:
        """The URL without its options."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "herd+grpc" if self.is_grpc else "herd"
        return f"{scheme}://{host}:{self.port}/{self.tablespace}"


def parse_target(target: "str | os.PathLike[str]") -> Target | RemoteTarget:
    """Return what the target names; the directory need not exist.

    Real paths make one database of every spelling and symbolic link. InterfaceError for what is
    no target, NotSupportedError (0A000) for a URL of another scheme.
    """
    if not isinstance(target, (str, os.PathLike)):
        raise InterfaceError(
            f"connect: expected a path or {MEMORY!r} as target, found {type(target).__name__}"
        )
    text = os.fspath(target)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InterfaceError(
            f"connect: expected a path or {MEMORY!r} as target, found {text!r}",
            hint=f"{MEMORY!r} opens a private database that ends with its connection",
        )
    if text == MEMORY:
        return Target(None)
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Target(os.path.realpath(text))
    if scheme[1].lower() in ("herd", "herd+grpc"):
        return _parse_url(text, is_grpc=scheme[1].lower() != "herd")
    raise NotSupportedError(
        f"connect: {scheme[1]}:// targets are not supported, found {text!r}",
        hint="name a directory, for example './data', or a server: herd://localhost:7000",
    )


def _parse_url(text: str, *, is_grpc: bool) -> RemoteTarget:
    try:
        url = urlsplit(text)
        host, port = url.hostname, url.port
        pairs = parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query))
    except ValueError as error:
        raise InterfaceError(f"connect: {text!r} is no URL: {error}") from None
    if not host or url.fragment or url.path.count("/") > 1:
        raise InterfaceError(
            f"connect: expected herd://host:port/tablespace?option=value, found {text!r}"
        )
    if url.username is not None or url.password is not None:
        raise NotSupportedError(
            "connect: users and passwords are not supported yet", hint="leave them out of the URL"
        )
    options: dict[str, object] = {}
    for name, value in pairs:
        if name in options:
            raise InterfaceError(f"connect: the option {name!r} is given twice")
        options[name] = _option(name, value)
    return RemoteTarget(
        host=host,
        port=(DEFAULT_GRPC_PORT if is_grpc else DEFAULT_PORT) if port is None else port,
        tablespace=unquote(url.path[1:]) or DEFAULT_TABLESPACE,
        is_grpc=is_grpc,
        **options,  # type: ignore[arg-type]  # _option() has checked them
    )


def _option(name: str, value: str) -> object:
    read = _OPTIONS.get(name)
    if read is None:
        close = get_close_matches(name, _OPTIONS, 1)
        raise InterfaceError(
            f"connect: unknown option {name!r} in the URL",
            hint=f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_OPTIONS)}",
        )
    try:
        return read(value)
    except ValueError:
        raise InterfaceError(
            f"connect: {name}: expected {_EXPECTED[name]}, found {value!r}"
        ) from None


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0 < seconds <= 86_400:
        raise ValueError(value)
    return seconds


def _seconds_or_zero(value: str) -> float:
    return 0.0 if float(value) == 0 else _seconds(value)


def _short_text(value: str) -> str:
    if len(value.encode()) > 256:
        raise ValueError(value)
    return value


_OPTIONS: dict[str, Callable[[str], object]] = {
    "connect_timeout_s": _seconds,
    "application_name": _short_text,
    "retry_timeout_s": _seconds_or_zero,
}
_EXPECTED = {
    "connect_timeout_s": "seconds up to 86400",
    "application_name": "at most 256 bytes",
    "retry_timeout_s": "seconds up to 86400, or 0",
}
