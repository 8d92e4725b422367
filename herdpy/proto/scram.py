"""SCRAM-SHA-256 (RFC 5802, 7677) of both sides: proof of a password that never crosses the wire.

Over TLS the proof is bound to the server's certificate (tls-server-end-point, RFC 5929), so that
no relay in between can pass it on. The work is scramp's; it is imported on first use. The name in
the first message of SCRAM is not looked at: Hello has it. One thread at a time.
"""

import hashlib
import hmac
from base64 import b64decode
from typing import Any, Final

from herdpy.errors import OperationalError, ProtocolError
from herdpy.proto.messages import (
    LoginRequired,
    ScramChallenge,
    ScramProof,
    ScramStart,
    ScramVerified,
)

MECHANISM: Final = "SCRAM-SHA-256"
MECHANISM_BOUND: Final = "SCRAM-SHA-256-PLUS"
ITERATIONS: Final = 15_000
"""Of users who do not exist: as many as those who do have."""
ITERATIONS_MAX: Final = 1_000_000
"""What a driver computes for a server at most: about half a second."""
_BINDING: Final = "tls-server-end-point"
_NAME: Final = "*"


def certificate_binding(certificate: bytes) -> bytes:
    """Return what binds a login to a certificate (DER): its hash by its signature's own function.

    SHA-256 instead of MD5 and SHA-1, and where the signature has none of its own (Ed25519).
    """
    from asn1crypto.x509 import Certificate

    try:
        name: str = Certificate.load(certificate).hash_algo
        if name in ("md5", "sha1"):
            name = "sha256"
        return hashlib.new(name, certificate).digest()
    except ValueError:
        return hashlib.sha256(certificate).digest()


class ScramServer:
    """The server's side of one login; without a verifier it fails at its end, as if there was one.

    `secret` is the server's own, and makes the salts of users who do not exist.
    """

    def __init__(
        self, user: str, verifier: str | None, *, binding: bytes | None, secret: bytes
    ) -> None:
        self._user = user
        self._binding = binding
        self._keys = _imagined(user, secret) if verifier is None else _parsed(verifier)
        self._is_imagined = verifier is None
        self._server: Any = None
        self._is_proven = False

    def offer(self) -> LoginRequired:
        """Return what asks for the login."""
        bound = [] if self._binding is None else [MECHANISM_BOUND]
        return LoginRequired([*bound, MECHANISM])

    def challenge(self, start: ScramStart) -> ScramChallenge:
        """Return the answer to the first message; ProtocolError."""
        from scramp import ScramException, ScramMechanism

        if self._server is not None:
            raise ProtocolError("a second ScramStart")
        if start.mechanism not in self.offer().mechanisms:
            raise ProtocolError("a mechanism that was not offered")
        binding = None if self._binding is None else (_BINDING, self._binding)
        try:
            self._server = ScramMechanism(start.mechanism).make_server(
                lambda name: self._keys, channel_binding=binding
            )
            self._server.set_client_first(start.data)
            return ScramChallenge(self._server.get_server_first())
        except ScramException as error:
            raise ProtocolError(f"SCRAM: {error}") from None

    def verify(self, proof: ScramProof) -> ScramVerified:
        """Return the server's own proof; OperationalError 28P01: the password is another."""
        from scramp import ScramException

        if self._server is None or self._is_proven:
            raise ProtocolError("a ScramProof out of turn")
        self._is_proven = True
        try:
            self._server.set_client_final(proof.data)
            verified = ScramVerified(self._server.get_server_final())
        except ScramException:
            raise login_failed(self._user) from None
        if self._is_imagined:
            raise login_failed(self._user)
        return verified


def login_failed(user: str) -> OperationalError:
    """Return the one error of all logins that fail: it does not say what was wrong."""
    return OperationalError(
        f'password authentication failed for user "{user[:63]}"',
        sqlstate="28P01",
        hint="check the name, the password, and that the user may log in (an administrator finds "
        "the reason in the audit log)",
    )


def _parsed(verifier: str) -> tuple[bytes, bytes, bytes, int]:
    """Return salt, stored key, server key, iterations; ValueError, without the text."""
    try:
        mechanism, derived, keys = verifier.split("$")
        iterations, salt = derived.split(":")
        stored, served = keys.split(":")
        if mechanism != MECHANISM:
            raise ValueError
        return b64decode(salt), b64decode(stored), b64decode(served), int(iterations)
    except ValueError:
        raise ValueError("a malformed SCRAM-SHA-256 verifier") from None


def _imagined(user: str, secret: bytes) -> tuple[bytes, bytes, bytes, int]:
    """Return the same for the same name, so that asking twice tells nothing."""
    salt, stored, served = (
        hmac.new(secret, what + user.encode(errors="replace"), hashlib.sha256).digest()
        for what in (b"salt ", b"stored ", b"served ")
    )
    return salt[:16], stored, served, ITERATIONS


class ScramDriver:
    """The driver's side of one login: answers what the server asks, and checks the server."""

    def __init__(self, user: str, password: str, *, binding: bytes | None) -> None:
        self._user = user
        self._password = password
        self._binding = binding
        self._client: Any = None
        self.is_verified = False
        """The server knows the password's verifier, too."""

    def start(self, required: LoginRequired) -> ScramStart:
        """Return the first message; OperationalError, ProtocolError."""
        from scramp import ScramClient, ScramException

        if self._client is not None:
            raise ProtocolError("a second LoginRequired")
        known = [each for each in required.mechanisms if each in (MECHANISM, MECHANISM_BOUND)]
        if not known:
            raise OperationalError(
                f"login: the server knows {', '.join(required.mechanisms[:8]) or 'no way'}, this "
                f"driver {MECHANISM}",
                sqlstate="08004",
                hint="install a driver and a server of the same release",
            )
        binding = None if self._binding is None else (_BINDING, self._binding)
        try:
            self._client = ScramClient(known, _NAME, self._password, channel_binding=binding)
        except ScramException:
            raise OperationalError(
                "login: the password has characters that no password may have (RFC 4013)",
                sqlstate="28P01",
            ) from None
        return ScramStart(self._client.mechanism_name, self._client.get_client_first())

    def prove(self, challenge: ScramChallenge) -> ScramProof:
        """Return the proof; takes some milliseconds. ProtocolError."""
        from scramp import ScramException

        try:
            if self._client is None:
                raise ProtocolError("a ScramChallenge out of turn")
            self._client.set_server_first(challenge.data)
            if int(self._client.iterations) > ITERATIONS_MAX:
                raise ProtocolError(
                    f"login: expected at most {ITERATIONS_MAX:,} iterations, found "
                    f"{int(self._client.iterations):,}"
                )
            return ScramProof(self._client.get_client_final())
        except ScramException as error:
            raise ProtocolError(f"SCRAM: {error}") from None

    def check(self, verified: ScramVerified) -> None:
        """Believe the server, or raise OperationalError 28000."""
        from scramp import ScramException

        try:
            if self._client is None:
                raise ProtocolError("a ScramVerified out of turn")
            self._client.set_server_final(verified.data)
        except ScramException:
            raise OperationalError(
                f'login: the server does not know the password of "{self._user[:63]}" itself: '
                "it is not the one it seems to be",
                sqlstate="28000",
            ) from None
        self.is_verified = True
