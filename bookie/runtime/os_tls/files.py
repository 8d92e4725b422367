"""TLS contexts made of files, and made anew when the files change.

Of servers and clients alike. New files count for connections to come; those that cannot be used, or
whose certificate is not valid now, leave the old ones in use (Reread).
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from asn1crypto import x509

from bookie.errors import BookieStartError
from bookie.runtime.interfaces import Clock
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_input_files import Reread, read_text

_log = logging.getLogger(__name__)

_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"


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
    found = first_certificate(path)
    return Validity(found.not_valid_before.timestamp(), found.not_valid_after.timestamp())


def first_certificate(path: str) -> Any:
    """Return the first certificate in a file that a context has loaded."""
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

    def newest(self) -> ssl.SSLContext:
        """Look at the files, and return the context; for users that run check() nowhere else."""
        self.check()
        return self.current

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


def client_contexts(
    trust_path: str | None, certificate: tuple[str, str] | None, what: str
) -> TlsContexts:
    """Return what a client asks for TLS with, whose servers have certificates of trust_path.

    trust_path: None trusts the system's authorities. certificate: paths of the one that it shows,
    and of its key. what: as the log calls it. BookieStartError names the file
    that cannot be used; TrustError: it is trust_path.
    """

    def make() -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=trust_path)
        except OSError as error:  # ssl.SSLError is one
            raise TrustError(
                f"cannot use {trust_path}: {error}; expected certificates in PEM format"
            ) from error
        if certificate is not None:
            load_certificate(context, *certificate)
        return context

    own, key = (None, None) if certificate is None else certificate
    return TlsContexts(what, make, OsClock(), own, key, trust_path)


class TrustError(BookieStartError):
    """The file of authorities cannot be used."""


class OptionError(Exception):
    """An option of a command cannot be used; the command says so in its own way."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"{option}: {reason}")
        self.option = option
        self.reason = reason


def contexts_of_options(
    trust_path: str | None, certificate: tuple[str, str] | None, option: str, what: str
) -> TlsContexts | None:
    """Return client_contexts() of what a command was given; None: to speak in clear.

    option: that trust_path comes from, "-trust" at its end; the certificate's begins so, too.
    OptionError names the one of the two that cannot be used.
    """
    of_certificate = option.removesuffix("-trust")
    if trust_path is None:
        if certificate is not None:
            raise OptionError(of_certificate, f"expected {option} FILE with it")
        return None
    try:
        return client_contexts(trust_path, certificate, what)
    except BookieStartError as error:
        named = option if isinstance(error, TrustError) else of_certificate
        raise OptionError(named, str(error).removeprefix("TLS: ")) from error
