"""Logins to ZooKeeper: by the scheme `digest`, or by SASL's DIGEST-MD5, which is Apache's way.

Lines `digest USER:PASSWORD` or `sasl USER:PASSWORD`. With `digest` ZooKeeper takes any user and
password, and the two make the identity: a wrong one shows as nodes that cannot be read. With `sasl`
ZooKeeper's own file (JAAS, section Server) has the users. Several lines of `digest` are several
identities at once, as a new password needs; of `sasl` there is one. Apache BookKeeper's bookies log
in by SASL: in one cluster with them so do ours. Pure computation, but for read_logins(); RFC 2831
for DIGEST-MD5.
"""

import base64
import hashlib
import re
from dataclasses import dataclass, field

from bookie.errors import BookieStartError, SecurityError
from bookie.metadata.acl import Identity
from bookie.runtime.os_input_files import read_given

_LOGINS_MAX = 8
_LOGIN_CHARS_MAX = 1024
SASL_URI = "zookeeper/zk-sasl-md5"
"""Service and host are fixed in ZooKeeper's clients and servers (SecurityUtils)."""
_DIRECTIVE = re.compile(r'\s*([A-Za-z-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_COUNT = "00000001"


@dataclass(frozen=True, slots=True)
class Login:
    """One user; the password is shown by nothing."""

    scheme: str
    user: str
    password: str = field(repr=False)

    @property
    def identity(self) -> Identity:
        """What ACLs call it."""
        if self.scheme == "sasl":
            return Identity("sasl", self.user)
        secret = f"{self.user}:{self.password}".encode()
        # ZooKeeper's own form (DigestAuthenticationProvider).
        digest = hashlib.sha1(secret, usedforsecurity=False).digest()
        return Identity("digest", f"{self.user}:{base64.b64encode(digest).decode()}")


def read_logins(option: str, path: str | None, variable: str | None) -> tuple[Login, ...]:
    """Return the logins of a file, or else of an environment's variable; neither: ().

    option: where the path comes from, for BookieStartError, which says nothing that is secret.
    """
    text, where = read_given(option, path, variable)
    return parse_logins(text, where) if where else ()


def parse_logins(text: str, where: str) -> tuple[Login, ...]:
    """Read lines of logins; BookieStartError names `where` and the line, never what is secret."""
    found: list[Login] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip().split(maxsplit=1)
        if not words or words[0].startswith("#"):
            continue
        scheme = words[0]
        user, colon, password = words[1].partition(":") if len(words) == 2 else ("", "", "")
        is_short = len(line) <= _LOGIN_CHARS_MAX
        if scheme not in ("digest", "sasl") or not (user and colon and password and is_short):
            raise BookieStartError(
                f"{where}, line {number}: expected `digest USER:PASSWORD` or `sasl USER:PASSWORD`, "
                f"at most {_LOGIN_CHARS_MAX} characters"
            )
        if not words[1].isprintable() or (scheme == "sasl" and not words[1].isascii()):
            raise BookieStartError(
                f"{where}, line {number}: expected printable characters, and for sasl those of "
                "ASCII"
            )
        found.append(Login(scheme, user, password))
    if not found:
        raise BookieStartError(
            f"{where}: expected a line `digest USER:PASSWORD` or `sasl USER:PASSWORD`, found none"
        )
    if len(found) > _LOGINS_MAX or sum(login.scheme == "sasl" for login in found) > 1:
        raise BookieStartError(
            f"{where}: expected at most {_LOGINS_MAX} logins, and of them one by sasl; found "
            f"{len(found)}"
        )
    return tuple(found)


class SaslDigest:
    """One exchange of DIGEST-MD5, from the client's side: answer(), then check()."""

    def __init__(self, login: Login, nonce: str) -> None:
        """nonce: the client's, drawn anew for each exchange."""
        self._login = login
        self._nonce = nonce
        self._expected = ""

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to the server's challenge; SecurityError for one that is none."""
        said = _directives(challenge)
        nonce = said.get("nonce")
        ways = said.get("qop", "auth").replace(" ", "").split(",")
        if nonce is None or said.get("algorithm") != "md5-sess" or "auth" not in ways:
            raise SecurityError(
                "ZooKeeper's SASL challenge: expected nonce, algorithm=md5-sess and qop auth, "
                f"found {', '.join(sorted(said)) or 'none of them'}"
            )
        realm = said.get("realm", "")
        login = self._login
        secret = _md5(f"{login.user}:{realm}:{login.password}".encode()).digest()
        own = _md5(secret + f":{nonce}:{self._nonce}".encode()).hexdigest()

        def proof(prefix: str) -> str:
            second = _md5(f"{prefix}:{SASL_URI}".encode()).hexdigest()
            text = f"{own}:{nonce}:{_COUNT}:{self._nonce}:auth:{second}"
            return _md5(text.encode()).hexdigest()

        self._expected = proof("")
        words = [
            "charset=utf-8",
            f"username={_quoted(login.user)}",
            f"realm={_quoted(realm)}",
            f"nonce={_quoted(nonce)}",
            f"nc={_COUNT}",
            f"cnonce={_quoted(self._nonce)}",
            f"digest-uri={_quoted(SASL_URI)}",
            f"response={proof('AUTHENTICATE')}",
            "qop=auth",
        ]
        return ",".join(words).encode()

    def check(self, said: bytes) -> None:
        """Check that the server knows the password, too; SecurityError."""
        if _directives(said).get("rspauth") != self._expected:
            raise SecurityError(
                "ZooKeeper's answer to the SASL login does not prove that it knows the password"
            )


def _directives(data: bytes) -> dict[str, str]:
    """Read `name=value,…`; what does not fit ends it."""
    text = data.decode("utf-8", "replace")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            break
        value = match[3] if match[2] is None else _ESCAPED.sub(r"\1", match[2])
        found.setdefault(match[1].lower(), value)
        position = match.end()
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _md5(data: bytes) -> "hashlib._Hash":
    return hashlib.md5(data, usedforsecurity=False)  # the protocol's own
