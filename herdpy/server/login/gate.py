"""Gate: authentication: TLS, logins, and how many unauthenticated connections for how long.

A connection is unauthenticated until it was sent Welcome. A server that only this machine reaches
lets every client in, with all rights, until the first password is set: from then on, and after the
last one is gone, it asks for a login. `authentication` says otherwise. On the server's loop.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Callable
from operator import eq
from typing import TYPE_CHECKING

from herdpy.config import ServerConfig
from herdpy.engine.access.passwords import Login
from herdpy.errors import Error, OperationalError, Retry
from herdpy.proto.scram import ScramServer
from herdpy.server.login.audit import Audit
from herdpy.server.login.certificates import names_of
from herdpy.server.login.throttle import Throttle
from herdpy.storage.tablespace_list import DEFAULT

if TYPE_CHECKING:
    from herdpy.engine.database import Database


class Gate:
    def __init__(
        self,
        database: "Database",
        audit: Audit,
        secret: bytes,
        config: ServerConfig,
        throttle: Throttle,
    ) -> None:
        """`secret` makes the salts of users who do not exist while the database has none for it."""
        self.audit = audit
        self.throttle = throttle
        self._database = database
        self._secret = secret
        self._config = config
        self._rule = config.authentication
        self._client_check = config.tls_client_check
        self._is_public = False
        self.tablespace = DEFAULT
        """What a cluster calls the database itself."""
        self.are_same: Callable[[str, str], bool] = eq
        """Whether two names are those of one tablespace."""

    def open_to(self, addresses: list[str], *, has_tls: bool) -> None:
        """Say where the server will listen; OperationalError: not without TLS and a password."""
        has_user = self._database.has_logins or self._client_check == "cert"
        if check_addresses(addresses, self._config, has_tls=has_tls, has_user=has_user):
            self._is_public = True

    def begin(
        self,
        user: str,
        binding: bytes | None,
        certificate: bytes | None,
        database: "Database | None",
        login: Login | None = None,
        tablespace: str = DEFAULT,
    ) -> ScramServer | None:
        """Return the login to go through; None: none is needed, a named user is who she says.

        `database` is the tablespace whose user it is; None: there is none of that name, which who
        has not logged in is not told. `login` is how she may log in; None: there is no such user.
        `tablespace` is the name that the client has given.

        `binding` is that of the server's certificate, `certificate` the client's (DER).
        OperationalError 28000.
        """
        if not user:
            if self._asks_for_users(database):
                raise OperationalError(
                    "this server asks for a user and a password",
                    sqlstate="28000",
                    hint="name a user in the URL, as in herd://ada@host, and give the password",
                )
            return None
        if self._client_check != "verify-ca":
            self._check_certificate(user, tablespace, certificate, login)
            if self._client_check == "cert":
                return None
        verifier = login.verifier if login is not None and login.may_login else None
        secret = self._secret_of(database, tablespace)
        return ScramServer(user, verifier, binding=binding, secret=secret)

    def _secret_of(self, database: "Database | None", tablespace: str) -> bytes:
        """Return what makes the salts of users who do not exist in a tablespace, or where none is.

        One of all would tell users: their salts are other ones than in a tablespace that is absent.
        Those of a tablespace go with it to another name, as the salts of its users do.
        """
        secret = self._database.login_secret or self._secret
        if database is self._database:
            return secret
        if database is None:
            what = b"no tablespace " + tablespace.encode(errors="surrogatepass")
        else:
            what = b"tablespace " + database.entry.id
        return hmac.digest(secret, what, hashlib.sha256)

    def _asks_for_users(self, database: "Database | None") -> bool:
        if self._rule != "auto":
            return self._rule == "required"
        # A tablespace without users takes no connection of the network where others have some.
        both = (self._database, database or self._database)
        has_had_one = any(each.has_logins or each.login_secret is not None for each in both)
        return has_had_one or self._is_public or self._client_check != "verify-ca"

    def check_again(
        self, user: str, tablespace: str, certificate: bytes | None, login: Login | None
    ) -> None:
        """Raise 28000 when a user who has proved to be one could not begin with this certificate.

        The rest as for begin().
        """
        if self._client_check != "verify-ca":
            self._check_certificate(user, tablespace, certificate, login)

    def _check_certificate(
        self, user: str, tablespace: str, certificate: bytes | None, login: Login | None
    ) -> None:
        """Raise unless the certificate names the user, who may log in. Only its bearer is told."""
        names = () if certificate is None else names_of(certificate)
        if not any(self._is_name_of(name, user, tablespace) for name in names):
            reason = "the client's certificate does not name the user"
        elif login is not None and login.may_login:
            return
        else:
            reason = "the user may not log in"
        raise OperationalError(
            f'certificate authentication failed for user "{user[:63]}": {reason}',
            sqlstate="28000",
            hint="its common name, or an alternative name, has to be that of the user; of one of "
            f"another tablespace than {DEFAULT}: user@tablespace",
        )

    def _is_name_of(self, name: str, user: str, tablespace: str) -> bool:
        """Return whether a certificate's name is that of a user of a tablespace.

        It is one of `default`, unless what is behind its last @ is a tablespace. On a node of a
        cluster `default` is the only one that it carries; of several there is none.
        """
        first, at, last = name.rpartition("@")
        if at and (last == self.tablespace or self._database.instance.tablespaces.has(last)):
            return first == user and self.are_same(last, tablespace)
        return name == user and self.are_same(DEFAULT, tablespace)

    def why_not(self, user: str, tablespace: str, database: "Database | None") -> str:
        """Return for the audit log why a login failed, which the client is not told.

        `database` is what the name `tablespace` has led to; None: to none that is open.
        """
        if database is None:
            instance = self._database.instance
            if not instance.tablespaces.has(tablespace):
                return "there is no such tablespace"
            try:
                instance.tablespaces.opened(tablespace)
            except Error as error:
                return f"the tablespace cannot be opened: {error.message}"
            return "the tablespace was not open yet"
        found = database.login(user)
        if found is None:
            return "there is no such user"
        if not found.may_login:
            return "the user may not log in"
        return "no valid password" if found.verifier is None else "wrong password"


def check_addresses(
    addresses: list[str], config: ServerConfig, *, has_tls: bool, has_user: bool
) -> bool:
    """Return whether others reach one of these; OperationalError F0000: they must not, as it is.

    has_user: one with a password, or whose certificate does.
    """
    public = [each for each in addresses if not _is_loopback(each)]
    if not public:
        return False
    if config.authentication == "trust":
        raise OperationalError(
            f"serve: others reach {public[0]}, and authentication is 'trust'",
            sqlstate="F0000",
            hint="listen on 127.0.0.1, or leave authentication at 'auto'",
        )
    missing: list[str] = []
    if not has_tls:
        missing.append("TLS (--tls-certificate, --tls-key)")
    if not has_user:
        missing.append("a user with a password")
    if missing:
        raise OperationalError(
            f"serve: others reach {public[0]}, which needs {' and '.join(missing)}",
            sqlstate="F0000",
            hint="listen on 127.0.0.1 and let others in by an SSH tunnel, or see the guide: "
            "docs/guides/security.md",
        )
    return True


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.split("%")[0]).is_loopback
    except ValueError:  # of other names it is not known that they are harmless
        return f".{address.lower()}".endswith(".localhost")  # RFC 6761, 6.3


TABLESPACE_KEY = "herdpy-tablespace"
"""Metadata of a gRPC call: whose user its password is of; without it `default`."""


def gave_way_unauthenticated(config: ServerConfig) -> Error:
    """Return what an unauthenticated connection is told that has given way to newer ones."""
    return OperationalError(
        f"{config.logins_of_address_max} connections of this address, or {config.logins_max} in "
        "all, have begun to log in since, more are not allowed",
        sqlstate="53300",
        retry=Retry.SAFE,
        hint="try again in a moment, or share connections by a pool",
    )


def too_slow(login_timeout_s: float) -> Error:
    """Return the refusal of a connection that did not log in in time."""
    return OperationalError(
        f"no login within {login_timeout_s:g} s", sqlstate="08004", retry=Retry.SAFE
    )
