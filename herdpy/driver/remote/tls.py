"""The driver's side of TLS: whom it trusts, what it shows, and what to tell when that fails."""

import ssl
from collections.abc import Generator
from contextlib import contextmanager

from bookie.runtime.os_tls.stream import TlsStream
from herdpy.driver.dsn import RemoteTarget
from herdpy.errors import OperationalError, Retry


def open_tls_stream(target: RemoteTarget) -> TlsStream:
    """Connect by TLS 1.2 or newer; OSError: not reached; OperationalError 08001: no TLS with it."""
    context = client_context(target)
    with tls_errors(target):
        return TlsStream(
            target.host, target.port, target.connect_timeout_s, context, target.tls_name
        )


@contextmanager
def tls_errors(target: RemoteTarget) -> Generator[None]:
    """Say what a handshake failed of."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise not_trusted(target, error.verify_message) from None
    except ssl.SSLError as error:
        raise _failed(
            target, str(error), "a server on loopback may have no TLS: ?tls=off"
        ) from None


def client_context(target: RemoteTarget) -> ssl.SSLContext:
    """Return what trusts the target's authority, the system's when it names none."""
    try:
        context = ssl.create_default_context(cafile=target.tls_authority or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if target.tls_certificate:
            key = target.tls_key or None
            # An empty password: a library does not ask on the terminal.
            context.load_cert_chain(target.tls_certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = (target.tls_authority, target.tls_certificate, target.tls_key)
        raise _failed(
            target,
            f"cannot use {', '.join(filter(None, files))}: {error}",
            "expected files in PEM format, the key without a password",
        ) from None
    return context


def login_binding(stream: object) -> bytes | None:
    """Return what binds a login to the connection, None without TLS."""
    certificate: bytes | None = getattr(stream, "peer_certificate", None)
    if certificate is None:
        return None
    from herdpy.proto.scram import certificate_binding

    return certificate_binding(certificate)


def not_welcome(target: RemoteTarget, reason: str) -> OperationalError:
    """Return the error of a server that ended the connection before Welcome, and said nothing."""
    if target.has_tls:
        hint = "it may ask for a certificate that it trusts: ?tls_certificate=…&tls_key=…"
    else:
        hint = "a server with a certificate speaks TLS only: ?tls=on"
    return OperationalError(
        f"connect: {target.where} ended the connection before the login was over: {reason}",
        sqlstate="08001",
        retry=Retry.SAFE,  # nothing has run
        hint=hint,
    )


def not_trusted(target: RemoteTarget, reason: str) -> OperationalError:
    """Return the error of a server whose certificate does not show that it is the one."""
    return _failed(
        target,
        f"its certificate is not trusted: {reason}",
        "name the authority that signed it (?tls_authority=ca.pem), and the server as its "
        "certificate does",
    )


def not_spoken(target: RemoteTarget) -> OperationalError:
    """Return the error of a node that does not speak as the URL asks for; nothing was sent."""
    if target.has_tls:
        return _failed(
            target,
            "the node speaks no TLS, as its ZooKeeper says; nothing is said to it in clear",
            "give the node a certificate (herdpy node --tls-certificate), or ask for clear text: "
            "?tls=off",
        )
    return _failed(
        target,
        "the node speaks TLS only, as its ZooKeeper says, and the URL has tls=off",
        "leave tls=off out",
    )


def check_files(target: RemoteTarget) -> None:
    """Raise OperationalError 08001 when a file of the target's TLS cannot be used."""
    client_context(target)


def _failed(target: RemoteTarget, reason: str, hint: str) -> OperationalError:
    return OperationalError(
        f"connect: no TLS with {target.where}: {reason}", sqlstate="08001", hint=hint
    )
