"""Passwords: made into SCRAM-SHA-256 verifiers at once, and kept as nothing else.

A verifier is PostgreSQL's text: SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>, the
last three in base64. It lets a server check a proof; the password cannot be had from it.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

from bookie.runtime.interfaces import Rng
from herdpy.errors import DataError
from herdpy.model.access import User
from herdpy.model.types import Physical
from herdpy.sql.tree import Parameter, RoleOptions

ITERATIONS = 15_000
"""Of the key derivation, which is the client's work at each login: about 6 ms."""
_ITERATIONS_MIN = 4_096
_ITERATIONS_MAX = 1_000_000  # what a driver computes at most (proto/scram.py)
_SALT_BYTES = 16
_PASSWORD_BYTES_MAX = 1_000
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_VERIFIER = re.compile(rf"SCRAM-SHA-256\$(\d{{1,9}}):({_BASE64})\$({_BASE64}):({_BASE64})")
_KEY_CHARACTERS = 44  # of 32 bytes in base64


class Login(NamedTuple):
    """What a server needs to know of a user who wants to log in."""

    verifier: str | None
    """None: there is no password, or it is no longer valid."""
    may_login: bool
    user: User
    """Who logs in: no other user that has the name later."""

    def __repr__(self) -> str:
        return f"Login(may_login={self.may_login})"


def make_verifier(password: str, rng: Rng) -> str:
    """Return the verifier of a password; a text that is one already stays as it is.

    DataError 22023: empty, longer than 1,000 bytes, or with characters no password may have.
    """
    found = _VERIFIER.fullmatch(password)
    if found is not None:
        is_strong = _ITERATIONS_MIN <= int(found[1]) <= _ITERATIONS_MAX
        if not is_strong or {len(found[3]), len(found[4])} != {_KEY_CHARACTERS}:
            raise _refused(
                f"a SCRAM-SHA-256 verifier needs {_ITERATIONS_MIN} to {_ITERATIONS_MAX} iterations "
                "and keys of 32 bytes"
            )
        return password
    if password.startswith("SCRAM-SHA-256$"):
        raise _refused("this is no SCRAM-SHA-256 verifier, though it begins like one")
    if not 0 < len(password.encode(errors="replace")) <= _PASSWORD_BYTES_MAX:
        raise _refused(f"expected 1 to {_PASSWORD_BYTES_MAX} bytes")
    from scramp import ScramException, ScramMechanism

    try:
        salt, stored_key, server_key, iterations = ScramMechanism("SCRAM-SHA-256").make_auth_info(
            password, iteration_count=ITERATIONS, salt=rng.randbytes(_SALT_BYTES)
        )
    except ScramException:
        raise _refused("it has characters that no password may have (RFC 4013)") from None
    parts = [b64encode(part).decode() for part in (salt, stored_key, server_key)]
    return f"SCRAM-SHA-256${iterations}:{parts[0]}${parts[1]}:{parts[2]}"


def verifier_of(options: RoleOptions, values: Sequence[Physical], rng: Rng) -> str | None:
    """Return the verifier of the password that CREATE or ALTER ROLE names; None: of none."""
    password = options.password
    if password is None:
        return None
    text = values[password.index] if isinstance(password, Parameter) else password.value
    return None if text is None else make_verifier(str(text), rng)


def _refused(reason: str) -> DataError:
    return DataError(f"PASSWORD: {reason}", sqlstate="22023")
