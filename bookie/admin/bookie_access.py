"""Who may use a bookie's port: --host without TLS, --tls-access, --authorized-roles."""

import ipaddress
import socket

from bookie.errors import BookieStartError
from bookie.runtime.os_input_files import Reread, read_text
from bookie.server.wire.client_access import ClientAccess


def check_openness(host: str) -> None:
    """Refuse to serve other machines in clear; BookieStartError says what to do.

    What counts is the address that is listened on, not how it is written.
    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return  # check_ports() says it
    reached = sorted(
        {
            str(address[0])
            for *_, address in found
            if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
        }
    )
    if reached:
        raise BookieStartError(
            f"--host {host}: other machines reach {', '.join(reached)}, and could read and write "
            "all ledgers; expected TLS to be required: --tls CERTIFICATE KEY and "
            "--tls-trust FILE (clients show a certificate), or --tls and --set "
            "is_tls_required=true. In a network that keeps others out: --allow-clear"
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
