"""ServerTls: what the server shows of itself, and asks of its clients, over TLS.

Immutable: new files make a new one, for the connections that come from then on.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

from herdpy.config import ServerConfig
from herdpy.errors import OperationalError
from herdpy.proto.scram import certificate_binding


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of files in PEM format."""

    certificate: str
    """The server's own, and those between it and its authority, in that order."""
    key: str
    client_authority: str | None = None
    """Clients must show a certificate that one of these has signed; None: they show none."""


class ServerTls:
    def __init__(self, files: TlsFiles) -> None:
        """Read the files; OperationalError names the one that cannot be used."""
        self.files = files
        self.context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            # An empty password: a question on the terminal would stop the server.
            context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
            pem = Path(files.certificate).read_text("ascii")
            self.key_and_chain = (Path(files.key).read_bytes(), pem.encode())
            """PEM, for those who take no context."""
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise _unusable(
                f"certificate {files.certificate} with key {files.key}", error
            ) from None
        self.binding = certificate_binding(_first_certificate(pem))
        """Of logins to the certificate."""
        self.client_authority: bytes | None = None
        """PEM."""
        if files.client_authority is not None:
            try:
                self.client_authority = Path(files.client_authority).read_bytes()
                context.load_verify_locations(files.client_authority)
            except OSError as error:
                raise _unusable(f"client authority {files.client_authority}", error) from None
            context.verify_mode = ssl.CERT_REQUIRED
            # A session taken up again would not look at the client's certificate once more.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0


def server_tls(config: ServerConfig) -> ServerTls | None:
    """Return what the settings serve TLS with; None: nothing.

    OperationalError: a file cannot be used, or one of two is missing.
    """
    if bool(config.tls_certificate) != bool(config.tls_key) or (
        config.tls_client_authority and not config.tls_certificate
    ):
        raise OperationalError(
            "serve: expected tls_certificate and tls_key together, and tls_client_authority only "
            "with them",
            sqlstate="F0000",
        )
    if config.tls_client_check != "verify-ca" and not config.tls_client_authority:
        raise OperationalError(
            f"serve: tls_client_check is {config.tls_client_check!r}, which needs "
            "tls_client_authority",
            sqlstate="F0000",
        )
    if not config.tls_certificate:
        return None
    files = TlsFiles(
        certificate=config.tls_certificate,
        key=config.tls_key,
        client_authority=config.tls_client_authority or None,
    )
    return ServerTls(files)


def _first_certificate(pem: str) -> bytes:
    begin = pem.index("-----BEGIN CERTIFICATE-----")  # load_cert_chain has found it
    footer = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(pem[begin : pem.index(footer, begin) + len(footer)])


def _unusable(what: str, error: Exception) -> OperationalError:
    return OperationalError(
        f"TLS: cannot use {what}: {error}",
        sqlstate="F0000",
        hint="expected files in PEM format that belong together, the key without a password",
    )
