"""Gate: who gets in: TLS, logins, and how many strangers may stand at the door for how long.

A stranger is a connection that has not been told Welcome. A server that only this machine reaches
and that has no user with a password lets everybody in, with all rights; any other asks for a login.
On the server's loop.
"""

import ipaddress

from herdpy.config import ServerConfig
from herdpy.errors import Error, OperationalError, Retry
from herdpy.proto.scram import ScramServer
from herdpy.server.audit import Audit
from herdpy.server.interfaces import Authenticator
from herdpy.server.tls import ServerTls, TlsFiles


class Gate:
    """See the module."""

    def __init__(
        self,
        authenticator: Authenticator,
        audit: Audit,
        secret: bytes,
        config: ServerConfig,
    ) -> None:
        """OperationalError: a file of TLS cannot be used, or one of two is missing."""
        self.audit = audit
        self._authenticator = authenticator
        self._secret = secret
        self._tls_files = _tls_files(config)
        self.tls = None if self._tls_files is None else ServerTls(self._tls_files)
        self._is_public = False

    def open_to(self, addresses: list[str], *, has_tls: bool) -> None:
        """Say where the server will listen; OperationalError: not without TLS and a password."""
        public = [each for each in addresses if not _is_loopback(each)]
        if not public:
            return
        missing: list[str] = []
        if not has_tls:
            missing.append("TLS (--tls-certificate, --tls-key)")
        if not self._authenticator.has_logins:
            missing.append("a user with a password")
        if missing:
            raise OperationalError(
                f"serve: others reach {public[0]}, which needs {' and '.join(missing)}",
                sqlstate="F0000",
                hint="listen on 127.0.0.1 and let others in by an SSH tunnel, or see the guide: "
                "docs/guides/security.md",
            )
        self._is_public = True

    def reload(self) -> None:
        """Read the files of TLS again, for connections to come; OperationalError: as before."""
        if self._tls_files is not None:
            self.tls = ServerTls(self._tls_files)
            self.audit.record("certificates_reloaded")

    def begin(self, user: str, binding: bytes | None) -> ScramServer | None:
        """Return the login to go through, None when none is needed; OperationalError 28000."""
        if user:
            return ScramServer(user, self._verifier(user), binding=binding, secret=self._secret)
        if self._is_public or self._authenticator.has_logins:
            raise OperationalError(
                "this server asks for a user and a password",
                sqlstate="28000",
                hint='connect("herd://user@host", password=…)',
            )
        return None

    def _verifier(self, user: str) -> str | None:
        found = self._authenticator.login(user)
        return found.verifier if found is not None and found.may_login else None

    def why_not(self, user: str) -> str:
        """Return for the audit log why a login failed, which the one who tried is not told."""
        found = self._authenticator.login(user)
        if found is None:
            return "there is no such user"
        if not found.may_login:
            return "the user may not log in"
        return "no valid password" if found.verifier is None else "wrong password"


def _tls_files(config: ServerConfig) -> TlsFiles | None:
    if bool(config.tls_certificate) != bool(config.tls_key) or (
        config.tls_client_authority and not config.tls_certificate
    ):
        raise OperationalError(
            "serve: expected tls_certificate and tls_key together, and tls_client_authority only "
            "with them",
            sqlstate="F0000",
        )
    if not config.tls_certificate:
        return None
    return TlsFiles(
        certificate=config.tls_certificate,
        key=config.tls_key,
        client_authority=config.tls_client_authority or None,
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.split("%")[0]).is_loopback
    except ValueError:
        return False  # what is no address is not known to be harmless


def too_many_strangers(logins_max: int) -> Error:
    """Return what a stranger is told for whom there is no room."""
    return OperationalError(
        f"{logins_max} connections are logging in, more are not allowed",
        sqlstate="53300",
        retry=Retry.SAFE,
        hint="try again in a moment, or share connections by a pool",
    )


def too_slow(login_timeout_s: float) -> Error:
    """Return what a stranger is told who did not log in in time."""
    return OperationalError(
        f"no login within {login_timeout_s:g} s", sqlstate="08004", retry=Retry.SAFE
    )
