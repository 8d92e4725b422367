"""TLS contexts of a bookie, and rights by certificate, from files."""

import logging
import ssl

from bookie.errors import BookieStartError
from bookie.runtime.interfaces import Clock
from bookie.runtime.os_input_files import Reread, read_text
from bookie.runtime.os_tls.files import TlsContexts, first_certificate, load_certificate
from bookie.server.wire.client_access import CertificateNames, ClientAccess, Grant

_log = logging.getLogger(__name__)

# What OpenSSL, and with it ssl, calls what asn1crypto calls otherwise.
_SUBJECT_NAMES = {"organizational_unit_name": "organizationalUnitName", "common_name": "commonName"}
_ALTERNATIVE_NAMES = {
    "dns_name": "DNS", "uniform_resource_identifier": "URI", "rfc822_name": "email"
}  # fmt: skip


def server_context(
    certificate_path: str, key_path: str, trust_path: str | None = None
) -> ssl.SSLContext:
    """Return what START_TLS uses; trust_path: clients must show a certificate signed by these.

    BookieStartError names the file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_certificate(context, certificate_path, key_path)
    if trust_path is not None:
        try:
            context.load_verify_locations(trust_path)
        except OSError as error:
            raise BookieStartError(
                f"TLS: cannot use the trusted certificates in {trust_path}: {error}; expected a "
                "file in PEM format"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
        # A session taken up again would not look at the client's certificate once more.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def names_in(path: str) -> CertificateNames:
    """Return the names of the first certificate in a file, as a peer sees them."""
    found = first_certificate(path)
    subject = [
        ((_SUBJECT_NAMES.get(part["type"].native, ""), part["value"].native),)
        for parts in found.subject.chosen
        for part in parts
    ]
    others = found.subject_alt_name_value or ()
    alternative = [(_ALTERNATIVE_NAMES.get(each.name, ""), each.native) for each in others]
    return CertificateNames.of({"subject": subject, "subjectAltName": alternative})


def server_contexts(
    certificate_path: str, key_path: str, trust_path: str | None, clock: Clock, what: str = "TLS"
) -> TlsContexts:
    """Return what server_context() makes of these files, and of those that replace them."""
    return TlsContexts(
        what,
        lambda: server_context(certificate_path, key_path, trust_path),
        clock,
        certificate_path,
        key_path,
        trust_path,
    )


def access_of(path: str | None, roles: str | None) -> Reread[ClientAccess] | None:
    """Return what certificates give by --tls-access and --authorized-roles; None: all may do all.

    BookieStartError.
    """
    if path is None and roles is None:
        return None
    named = [] if roles is None else [role.strip() for role in roles.split(",")]
    if not all(named):
        raise BookieStartError(
            f"--authorized-roles: expected roles with commas between, found {roles!r}"
        )

    def make() -> ClientAccess:
        where = "--authorized-roles" if path is None else f"--tls-access {path}"
        try:
            text = "" if path is None else read_text(path)
        except ValueError as error:
            raise BookieStartError(f"{where}: expected text in UTF-8 ({error})") from error
        return ClientAccess(text, where, named)

    return Reread("--tls-access", [] if path is None else [path], make)


def warn_of_own_rights(access: ClientAccess, certificate_path: str) -> None:
    """Say in the log that bookies with these rules would refuse this one as their client."""
    names = names_in(certificate_path)
    if access.grant_of(names) is not Grant.WRITE:
        _log.warning(
            "the rules of --tls-access and --authorized-roles do not let the bearer of %s (%s) "
            "write: bookies that have the same refuse what AutoRecovery and the scrub of this one "
            "ask them for; give it a line `write …`",
            certificate_path,
            names,
        )
