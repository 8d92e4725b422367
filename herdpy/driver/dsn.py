"""What connect()'s target names: memory, a directory, server or cluster: docs/reference/url.md."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from herdpy.errors import InterfaceError, NotSupportedError, ProgrammingError, closest, loading

MEMORY = ":memory:"
DEFAULT_PORT = 7000
DEFAULT_GRPC_PORT = 7001
DEFAULT_ZOOKEEPER_PORT = 2181
DEFAULT_TABLESPACE = "default"
DEFAULT_ROOT = "/herd"
PLACES_MAX = 32
"""Nodes, or servers of ZooKeeper, in one URL."""
_CREDENTIALS = re.compile(
    r"(\bherd(?:\+grpc|\+zk)?\s*[:;/\\]+[^\s:/@]*|[a-z][a-z0-9+.-]*:/{1,2}[^\s:/@]*):.*@"
    r"|\A((?:herd\.?)?/{0,2}[^\s:/@]+):[^\s/]*@(?=[^\s@]*\Z)",
    re.IGNORECASE | re.DOTALL,
)
_SECRET_OPTION = re.compile(
    r"([?&][^=&#\s]*(?:pass|pwd|secret|token)[^=&#\s]*=)[^&#\s]*", re.IGNORECASE
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_ALMOST_URL = re.compile(
    r"\s*herd(\+grpc|\+zk)?\s*(:|\.?//|;)|(//)?[^/@]*:[^/]*@[^/]*(/[^/]*)?$", re.IGNORECASE
)
"""A herd:// that is misspelled, or user:password@host without it; ./ makes a directory of it."""
_FOLDED_URL = re.compile(r"herd(\+grpc|\+zk)?:/", re.IGNORECASE)
"""What pathlib makes of a URL. Any other path object is a path, whatever is in its name."""
_PORTS = {
    "herd": DEFAULT_PORT,
    "herd+grpc": DEFAULT_GRPC_PORT,
    "herd+zk": DEFAULT_ZOOKEEPER_PORT,
}
_AUTHORITY = re.compile(r"([^/?#]*://)([^/?#]*)", re.DOTALL)
_OF_CLUSTERS = {"connect_timeout_s": 3.0, "retry_timeout_s": 30.0}
"""What options are in the URL of a cluster that does not give them."""


@dataclass(frozen=True, slots=True)
class Target:
    """`path` is the real, absolute path of the directory, None for a database in memory."""

    path: str | None
    tablespace: str = DEFAULT_TABLESPACE

    @property
    def where(self) -> str:
        """The path as messages show it: what was meant as a URL may have a password."""
        return MEMORY if self.path is None else without_passwords(self.path)


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int
    has_tls: bool | None = None
    """As the cluster's ZooKeeper says of a node: by TLS alone, or in clear alone; None: nothing."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address_of(text: str) -> Address | None:
    """Return what "host:port" or "[::1]:port" says; None: it is of another form."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    return Address(host, int(port)) if host and port.isdecimal() else None


class ZooKeeper(NamedTuple):
    """How the ZooKeeper of a cluster is reached. Paths are empty where there is no file."""

    hosts: str
    """"host:port,host:port"."""
    login: str = ""
    has_tls: bool = False
    tls_authority: str = ""
    """Of PEM; empty: the system's authorities."""
    tls_certificate: str = ""
    tls_key: str = ""

    def __str__(self) -> str:
        return f"the ZooKeeper at {self.hosts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTarget:
    """A server, or a cluster whose leader is meant, and what its URL asks for."""

    host: str
    port: int
    others: tuple[Address, ...] = ()
    """The nodes of a cluster beside the first, or the servers of its ZooKeeper."""
    root: str | None = None
    """What the cluster has in the ZooKeeper that is named; None: the nodes themselves are named."""
    is_node: bool = False
    """It is one of a cluster's, found: another can take its place."""
    tablespace: str
    connect_timeout_s: float = 10.0
    application_name: str = ""
    is_grpc: bool = False
    read: str = "leader"
    """Which node statements go to: the leader, one that follows, or any (nearest)."""
    max_staleness_s: float = 10.0
    """How old what a node shows that follows may be."""
    retry_timeout_s: float = 10.0
    """How long a lost connection is tried to be made anew; 0: it stays lost."""
    spin_us: int = 300
    """How long an answer is looked for without sleeping, where that pays; 0: never."""
    user: str = ""
    password: str | None = field(default=None, repr=False)
    tls: bool | None = None
    """None: unless the host is this machine; a node that was found may be there, too."""
    tls_authority: str = ""
    """Path of PEM; empty: the system's authorities."""
    tls_certificate: str = ""
    tls_key: str = ""
    tls_server_name: str = ""
    """What the server's certificate has to name; empty: the host."""
    node_has_tls: bool | None = None
    """Address.has_tls of a node that was found."""
    zookeeper_login: str = ""
    """Path of a file with the login for ZooKeeper."""
    zookeeper_tls: bool = False
    zookeeper_tls_authority: str = ""
    zookeeper_tls_certificate: str = ""
    zookeeper_tls_key: str = ""

    @property
    def has_tls(self) -> bool:
        """The server is spoken to by TLS.

        What ZooKeeper says of a node can only bring it about, and never take it away.
        """
        if self.tls is not None:
            return self.tls
        return self.node_has_tls is True or not _is_this_machine(self.host)

    @property
    def zookeeper(self) -> ZooKeeper:
        """Of a target with a root."""
        return ZooKeeper(
            ",".join(map(str, self.places)),
            self.zookeeper_login,
            self.zookeeper_tls,
            self.zookeeper_tls_authority,
            self.zookeeper_tls_certificate,
            self.zookeeper_tls_key,
        )

    @property
    def tls_name(self) -> str:
        return self.tls_server_name or self.host

    @property
    def is_cluster(self) -> bool:
        """The server is one that has to be found: at()."""
        is_one = self.root is None and not self.others and self.read == "leader"
        return not (is_one or self.is_node)

    @property
    def places(self) -> tuple[Address, ...]:
        """What the URL names, in its order."""
        return (Address(self.host, self.port), *self.others)

    @property
    def where(self) -> str:
        """The URL without its options."""
        scheme = "herd+grpc" if self.is_grpc else "herd" if self.root is None else "herd+zk"
        places = ",".join(map(str, self.places))
        return without_passwords(f"{scheme}://{places}/{self.tablespace}")

    def at(self, address: Address) -> "RemoteTarget":
        """Return the target of one node of the cluster."""
        return replace(
            self,
            host=address.host,
            port=address.port,
            others=(),
            root=None,
            is_node=True,
            node_has_tls=address.has_tls,
        )


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
        if (_ALMOST_URL if isinstance(target, str) else _FOLDED_URL).match(text):
            raise _not_a_url(text)
        return Target(os.path.realpath(text))
    if scheme[1].lower() in _PORTS:
        return _parse_url(text, scheme[1].lower())
    raise NotSupportedError(
        f"connect: {scheme[1]}:// targets are not supported, found {without_passwords(text)!r}",
        hint="name a directory, for example './data', or a server: herd://localhost:7000",
    )


def local_path(target: "str | os.PathLike[str]", what: str) -> tuple[str, str]:
    """Return the real path of a file or directory, and how messages show it.

    ProgrammingError for a server or memory: `what` says who expected what.
    """
    found = parse_target(target)
    if not isinstance(found, Target) or found.path is None:
        raise ProgrammingError(f"{what}, found {without_passwords(repr(target))}")
    return found.path, found.where


def without_passwords(text: str) -> str:
    """Return a text, such as a URL or a message with one in it, without a URL's password.

    The only place that takes passwords out of what is shown. It takes too much rather than too
    little: everything up to the last @, and values of options with names like that.
    """
    return _SECRET_OPTION.sub(r"\1***", _CREDENTIALS.sub(r"\1\2:***@", text))


def with_password(target: Target | RemoteTarget, password: str | None) -> Target | RemoteTarget:
    """Return the target with a password that is not in its URL; InterfaceError: it has no user."""
    if password is None:
        return target
    if not isinstance(password, str):
        raise InterfaceError(f"connect: password: expected text, found {type(password).__name__}")
    if not isinstance(target, RemoteTarget) or not target.user:
        raise InterfaceError(
            "connect: a password needs a server and a user in the URL",
            hint="name the user in the URL, as in herd://ada@host",
        )
    if target.password is not None:
        raise InterfaceError("connect: the password is given twice, in the URL and beside it")
    return replace(target, password=password)


def with_tablespace(target: Target | RemoteTarget, tablespace: str | None) -> Target | RemoteTarget:
    """Return the target with a tablespace that is named beside it; InterfaceError: two are."""
    if tablespace is None:
        return target
    if not isinstance(tablespace, str) or not tablespace:
        raise InterfaceError(f"connect: tablespace: expected a name, found {tablespace!r}")
    _check_text(tablespace, "tablespace")
    if target.tablespace not in (DEFAULT_TABLESPACE, tablespace):
        raise InterfaceError(
            f"connect: the URL names the tablespace {target.tablespace!r}, and {tablespace!r} is "
            "asked for beside it",
            hint="Name it once.",
        )
    return replace(target, tablespace=tablespace)


def _check_text(text: str, what: str) -> None:
    """Raise InterfaceError for text that no message, and no list, can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InterfaceError(
            f"connect: {what}: expected text of Unicode characters, found "
            f"{without_passwords(text)!r}, which has half of one (a surrogate)"
        ) from None


def _parse_url(text: str, scheme: str) -> RemoteTarget:
    _check_text(text, "the URL")
    with loading():
        from urllib.parse import parse_qsl, unquote, urlsplit

    first, others = _split_places(text)
    try:
        url = urlsplit(first)
        # One by one: no library reads several hosts.
        found = [url, *(urlsplit(f"herd://{place}") for place in others)]
        hosts = [(each.hostname, each.port) for each in found]
        pairs = parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query))
    except ValueError:  # whose text may have a part of a password, as all of the URL may
        raise InterfaceError(
            f"connect: the {text.partition(':')[0]}:// target is no URL: expected herd://user:"
            "password@host:port/tablespace?option=value, with a port of digits, or several "
            "host:port with commas between them"
        ) from None
    if url.fragment or url.path.count("/") > 1:
        raise _not_a_url(text)
    places: list[Address] = []
    for host, port in hosts:
        if not host:
            raise _not_a_url(text)
        places.append(Address(host, _PORTS[scheme] if port is None else port))
    _check_places(places)
    if url.password is not None and not url.username:
        raise InterfaceError("connect: a password without a user in the URL")
    is_cluster = scheme == "herd+zk" or len(places) > 1
    options: dict[str, object] = {}
    for name, value in pairs:
        if name in options:
            raise InterfaceError(f"connect: the option {name!r} is given twice")
        options[name] = _option(name, value)
    _check_tls(options, "tls")
    of_zookeeper = [name for name in options if name == "root" or name.startswith("zookeeper_")]
    if scheme == "herd+zk":
        options.setdefault("root", DEFAULT_ROOT)
        _check_tls(options, "zookeeper_tls")
    elif of_zookeeper:
        raise InterfaceError(
            f"connect: the option {of_zookeeper[0]!r} is of herd+zk:// URLs, found {scheme}://",
            hint="it is of the ZooKeeper that has the cluster; nodes that are named need none",
        )
    return RemoteTarget(
        user=unquote(url.username or ""),
        password=None if url.password is None else unquote(url.password),
        host=places[0].host,
        port=places[0].port,
        others=tuple(places[1:]),
        tablespace=unquote(url.path[1:]) or DEFAULT_TABLESPACE,
        is_grpc=scheme == "herd+grpc",
        **(_OF_CLUSTERS if is_cluster else {}) | options,  # type: ignore[arg-type]  # checked
    )


def _check_tls(options: dict[str, object], tls: str) -> None:
    """Let options tls_… ask for TLS, whatever the address of a node will be; InterfaceError."""
    given = [name for name in options if name.startswith(f"{tls}_")]
    if (given and options.get(tls) is False) or (
        f"{tls}_key" in options and f"{tls}_certificate" not in options
    ):
        raise InterfaceError(
            f"connect: {tls}_… options need TLS ({tls}=on), and {tls}_key needs {tls}_certificate"
        )
    if given:
        options[tls] = True


def _split_places(text: str) -> tuple[str, list[str]]:
    """Return the URL with the first of its places alone, and the others."""
    found = _AUTHORITY.match(text)
    assert found is not None, "it has a scheme"
    user, at, places = found[2].rpartition("@")
    first, *others = places.split(",")
    return f"{found[1]}{user}{at}{first}{text[found.end() :]}", others


def _check_places(places: list[Address]) -> None:
    if len(places) > PLACES_MAX:
        raise InterfaceError(
            f"connect: expected at most {PLACES_MAX} host:port in the URL, found {len(places)}"
        )
    for index, place in enumerate(places):
        if place in places[:index]:
            raise InterfaceError(f"connect: {place} is in the URL twice")


def _not_a_url(text: str) -> InterfaceError:
    return InterfaceError(
        "connect: expected herd://host:port/tablespace?option=value, or several host:port with "
        f"commas between them, found {without_passwords(text)!r}",
        hint="a directory of such a name is ./<name>",
    )


def _option(name: str, value: str) -> object:
    if name not in _OPTIONS:
        close = closest(name, _OPTIONS)
        raise InterfaceError(
            f"connect: unknown option {name!r} in the URL",
            hint=f"did you mean {close!r}?" if close else f"known: {', '.join(_OPTIONS)}",
        )
    read, expected = _OPTIONS[name]
    try:
        return read(value)
    except ValueError:
        raise InterfaceError(f"connect: {name}: expected {expected}, found {value!r}") from None


def _read_from(value: str) -> str:
    if value not in ("leader", "follower", "nearest"):
        raise ValueError(value)
    return value


def _root(value: str) -> str:
    parts = value.split("/")
    is_one = parts[0] == "" and len(parts) > 1 and "\0" not in value
    if not is_one or any(part in ("", ".", "..") for part in parts[1:]):
        raise ValueError(value)
    return value


def _seconds(value: str) -> float:
    seconds = float(value)
    if not 0 < seconds <= 86_400:
        raise ValueError(value)
    return seconds


def _seconds_or_zero(value: str) -> float:
    return 0.0 if float(value) == 0 else _seconds(value)


def _microseconds(value: str) -> int:
    count = int(value)
    if not 0 <= count <= 10_000:
        raise ValueError(value)
    return count


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    with loading():
        import ipaddress
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _on_or_off(value: str) -> bool:
    if value not in ("on", "off"):
        raise ValueError(value)
    return value == "on"


def _file(value: str) -> str:
    if not value or "\0" in value:
        raise ValueError(value)
    return value


def _short_text(value: str) -> str:
    if len(value.encode()) > 256:
        raise ValueError(value)
    return value


_SECONDS = "seconds up to 86400"
_BYTES = "at most 256 bytes"
_PATH = "a file's path"
_OPTIONS: dict[str, tuple[Callable[[str], object], str]] = {
    "connect_timeout_s": (_seconds, _SECONDS),
    "application_name": (_short_text, _BYTES),
    "retry_timeout_s": (_seconds_or_zero, f"{_SECONDS}, or 0"),
    "spin_us": (_microseconds, "microseconds up to 10000, or 0"),
    "read": (_read_from, "leader, follower or nearest"),
    "max_staleness_s": (_seconds, _SECONDS),
    "root": (_root, "a path of ZooKeeper, such as /herd"),
    "tls": (_on_or_off, "on or off"),
    "tls_authority": (_file, _PATH),
    "tls_certificate": (_file, _PATH),
    "tls_key": (_file, _PATH),
    "tls_server_name": (_short_text, _BYTES),
    "zookeeper_login": (_file, _PATH),
    "zookeeper_tls": (_on_or_off, "on or off"),
    "zookeeper_tls_authority": (_file, _PATH),
    "zookeeper_tls_certificate": (_file, _PATH),
    "zookeeper_tls_key": (_file, _PATH),
}
"""What reads each option, with ValueError, and what it expects."""
