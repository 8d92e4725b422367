"""ClientAccess: what the bearer of a certificate may ask a bookie for.

Lines `read|write KIND NAME`: whoever shows a certificate with this name may read, or also write.
KIND `role` is Apache BookKeeper's (BookieAuthZFactory, CertUtils): the first OU of the subject is
`0:ROLE,…;1:CLUSTER`, and of its roles the first counts. The other kinds are names as certificates
have them: cn, ou (any of the subject's), dns, uri, email (alternative names). Empty lines and those
that begin with # count for nothing. TLS has verified the certificate. Pure data.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from bookie.errors import BookieStartError

_ACCESS_CHARS_MAX = 256 * 1024
_LOGGED_CHARS_MAX = 300
_ROLE_CODE = "0"
_OU_VALUE = re.compile(r"([0-9]+):(.*)", re.DOTALL)


class Grant(IntEnum):
    """What a client may ask for; each includes those before it."""

    NONE = 0
    READ = 1
    """Entries, LACs, lists of entries, the bookie's space; nothing that fences."""
    WRITE = 2


_GRANTS = {"read": Grant.READ, "write": Grant.WRITE}
_SUBJECT = {"organizationalUnitName": "ou", "commonName": "cn"}
_ALTERNATIVE = {"DNS": "dns", "URI": "uri", "email": "email"}
KINDS = ("role", *_SUBJECT.values(), *_ALTERNATIVE.values())
_CASELESS = ("dns", "email")


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The names of one certificate, as (kind, name)."""

    names: tuple[tuple[str, str], ...]

    @staticmethod
    def of(certificate: Mapping[str, Any] | None) -> "CertificateNames":
        """Take what SSLSocket.getpeercert() returns; None or empty: there is no certificate."""
        found: list[tuple[str, str]] = []
        role: str | None = None
        is_first_ou = True
        for part in (certificate or {}).get("subject", ()):
            for name, value in part:
                kind = _SUBJECT.get(name)
                if kind is None:
                    continue
                found.append((kind, str(value)))
                if kind == "ou" and is_first_ou:
                    is_first_ou = False
                    role = _role_in(str(value))
        for name, value in (certificate or {}).get("subjectAltName", ()):
            kind = _ALTERNATIVE.get(name)
            if kind is not None:
                found.append((kind, str(value)))
        if role:
            found.insert(0, ("role", role))
        return CertificateNames(tuple(found))

    def __str__(self) -> str:
        """Return them for a log: without control characters, and not longer than a line."""
        text = ", ".join(f"{kind} {name}" for kind, name in self.names) or "no name"
        safe = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
        return safe if len(safe) <= _LOGGED_CHARS_MAX else safe[:_LOGGED_CHARS_MAX] + "…"


class ClientAccess:
    """See the module. Without a line no certificate gives anything."""

    def __init__(self, text: str = "", where: str = "", roles: Iterable[str] = ()) -> None:
        """Read lines, and let `roles` write as `write role …` would; BookieStartError."""
        self._grants: dict[tuple[str, str], Grant] = {}
        if len(text) > _ACCESS_CHARS_MAX:
            raise BookieStartError(f"{where}: expected at most {_ACCESS_CHARS_MAX} characters")
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split(maxsplit=2)
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 3 or words[0] not in _GRANTS or words[1] not in KINDS:
                raise BookieStartError(
                    f"{where}, line {number}: expected `read|write {'|'.join(KINDS)} NAME`, found "
                    f"{line[:80]!r}"
                )
            self._add(words[1], words[2].strip(), _GRANTS[words[0]])
        for role in roles:
            self._add("role", role, Grant.WRITE)
        if not self._grants:
            raise BookieStartError(
                f"{where}: expected lines `read|write {'|'.join(KINDS)} NAME`, found none: no "
                "client could do anything"
            )

    def grant_of(self, certificate: CertificateNames) -> Grant:
        """Return the greatest that one of its names gives."""
        found = [self._grants.get(_key(*name), Grant.NONE) for name in certificate.names]
        return max(found, default=Grant.NONE)

    def _add(self, kind: str, name: str, grant: Grant) -> None:
        key = _key(kind, name)
        self._grants[key] = max(grant, self._grants.get(key, Grant.NONE))


def _key(kind: str, name: str) -> tuple[str, str]:
    return kind, name.lower() if kind in _CASELESS else name


def _role_in(unit: str) -> str | None:
    """Return the first role of an OU in BookKeeper's form; as it does, the last `0:` counts."""
    roles: str | None = None
    for value in unit.split(";"):
        match = _OU_VALUE.match(value)
        if match is not None and match[1] == _ROLE_CODE:
            roles = match[2].strip()
    return None if roles is None else roles.split(",")[0].strip()
