"""TLS contexts of a bookie and of its clients, and rights by certificate, from files."""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from asn1crypto import x509

from bookie.errors import BookieStartError
from bookie.runtime.interfaces import Clock
from bookie.runtime.os_input_files import Reread, read_text
from bookie.server.wire.client_access import CertificateNames, ClientAccess, Grant

_log = logging.getLogger(__name__)

_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
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


def load_certificate(context: ssl.SSLContext, certificate_path: str, key_path: str) -> None:
    """Let a context show this certificate; BookieStartError names the files."""
    try:
        # An empty password: a question on the terminal would stop the bookie.
        context.load_cert_chain(certificate_path, key_path, password=lambda: b"")
    except OSError as error:  # ssl.SSLError is one
        raise BookieStartError(
            f"TLS: cannot use certificate {certificate_path} with key {key_path}: {error}; "
            "expected two files in PEM format that belong together, the key without a password"
        ) from error


@dataclass(frozen=True, slots=True)
class Validity:
    """The time of a certificate, in seconds since 1970."""

    begin_s: float
    end_s: float

    def problem(self, path: str, now_s: float) -> str | None:
        """Return why it is of no use now; None: it is."""
        if self.begin_s <= now_s < self.end_s:
            return None
        is_over = now_s >= self.end_s
        when = datetime.fromtimestamp(self.end_s if is_over else self.begin_s, UTC)
        return (
            f"TLS: the certificate in {path} {'ended' if is_over else 'begins'} at "
            f"{when:%Y-%m-%d %H:%M:%S} UTC, now it is "
            f"{datetime.fromtimestamp(now_s, UTC):%Y-%m-%d %H:%M:%S}: peers refuse it; put one "
            "in its place that is valid now, or mend the clock"
        )


def validity_of(path: str) -> Validity:
    """Return the time of the first certificate in a file that a context has loaded."""
    found = _first_in(path)
    return Validity(found.not_valid_before.timestamp(), found.not_valid_after.timestamp())


def names_in(path: str) -> CertificateNames:
    """Return the names of the first certificate in a file, as a peer sees them."""
    found = _first_in(path)
    subject = [
        ((_SUBJECT_NAMES.get(part["type"].native, ""), part["value"].native),)
        for parts in found.subject.chosen
        for part in parts
    ]
    others = found.subject_alt_name_value or ()
    alternative = [(_ALTERNATIVE_NAMES.get(each.name, ""), each.native) for each in others]
    return CertificateNames.of({"subject": subject, "subjectAltName": alternative})


def _first_in(path: str) -> Any:
    text = read_text(path)
    start = text.index(_BEGIN)
    end = text.index(_END, start) + len(_END)
    return x509.Certificate.load(ssl.PEM_cert_to_DER_cert(text[start:end]))


class TlsContexts(Reread[ssl.SSLContext]):
    """A context that is made anew when its files change; calling it returns the present one.

    New files whose certificate is not valid now are refused. At the start they are an error in the
    log: a bookie that does not start serves those who ask in clear no more than the others.
    """

    def __init__(
        self,
        what: str,
        make: Callable[[], ssl.SSLContext],
        clock: Clock,
        certificate_path: str | None,
        *other_paths: str | None,
    ) -> None:
        """make: reads the files; certificate_path: None, none is shown."""
        self._clock = clock
        self._certificate_path = certificate_path
        self._is_first = True
        self.validity: Validity | None = None
        paths = [path for path in (certificate_path, *other_paths) if path is not None]
        super().__init__(what, paths, lambda: self._made(make))

    @property
    def seconds_left(self) -> float:
        """How long the certificate is valid yet; negative: it is over."""
        assert self.validity is not None
        return self.validity.end_s - self._clock.wall_us() / 1e6

    def _made(self, make: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        context = make()
        path = self._certificate_path
        if path is not None:
            validity = validity_of(path)
            problem = validity.problem(path, self._clock.wall_us() / 1e6)
            if problem is not None and not self._is_first:
                raise BookieStartError(problem)
            if problem is not None:
                _log.error("%s", problem)
            self.validity = validity
        self._is_first = False
        return context


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
