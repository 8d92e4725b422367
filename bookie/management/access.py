"""HttpAccess: which role a client of the management API has: by a token, or by its certificate.

Read from a file once, at the start; each line `<role> token <token>` or `<role> certificate <common
name>`, roles `read` and `admin`; empty lines and those that begin with # count for nothing. Tokens
are kept as digests and compared in constant time.
"""

import hashlib
import hmac
from enum import IntEnum

from bookie.errors import BookieStartError

TOKEN_CHARS_MIN = 16
_ACCESS_BYTES_MAX = 64 * 1024


class Role(IntEnum):
    """What a client may do; each includes those before it."""

    NONE = 0
    READ = 1
    ADMIN = 2


_ROLES = {"read": Role.READ, "admin": Role.ADMIN}


class HttpAccess:
    """See the module. Without a line no client has a role."""

    def __init__(self, text: str = "", where: str = "") -> None:
        """BookieStartError names `where` and the line; never what is secret in it."""
        if len(text) > _ACCESS_BYTES_MAX:
            raise BookieStartError(f"{where}: expected at most {_ACCESS_BYTES_MAX} characters")
        self._tokens: list[tuple[bytes, Role]] = []
        self._names: dict[str, Role] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split(maxsplit=2)
            if not words or words[0].startswith("#"):
                continue
            role = _ROLES.get(words[0])
            is_token = len(words) == 3 and words[1] == "token"
            is_name = len(words) == 3 and words[1] == "certificate"
            if role is None or not (is_token or is_name):
                raise BookieStartError(
                    f"{where}, line {number}: expected `read|admin token TOKEN` or `read|admin "
                    "certificate NAME`"
                )
            secret = words[2].strip()
            if is_name:
                self._names[secret] = max(role, self._names.get(secret, Role.NONE))
                continue
            if len(secret) < TOKEN_CHARS_MIN or not secret.isascii() or " " in secret:
                raise BookieStartError(
                    f"{where}, line {number}: expected a token of at least {TOKEN_CHARS_MIN} ASCII "
                    "characters without blanks"
                )
            self._tokens.append((_digest(secret), role))

    @property
    def is_empty(self) -> bool:
        return not (self._tokens or self._names)

    @property
    def has_certificates(self) -> bool:
        return bool(self._names)

    def role_of(self, authorization: str | None, certificate_name: str | None) -> Role:
        """Return the greater of the roles that header and certificate give.

        authorization: the header's value, or None. A wrong token takes a certificate's role away.
        """
        role = Role.NONE
        if certificate_name is not None:
            role = self._names.get(certificate_name, Role.NONE)
        if authorization is None:
            return role
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return Role.NONE
        digest = _digest(token.strip())
        found = Role.NONE
        for known, granted in self._tokens:  # all of them: the time tells nothing
            if hmac.compare_digest(known, digest):
                found = max(found, granted)
        return max(role, found) if found else Role.NONE


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
