"""Opens a server's gRPC port as a URL says: TLS, and what to tell when that fails. Any thread."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from herdpy.driver.dsn import RemoteTarget
from herdpy.driver.local import open_grpc_stream
from herdpy.driver.remote.tls import check_files, not_trusted, not_welcome
from herdpy.errors import check_extra

if TYPE_CHECKING:
    from herdpy.driver.grpc_stream import GrpcStream, GrpcTls

_ENDED = ("Socket closed", "handshake", "Handshake", "onnection reset", "Broken pipe")
"""Of the texts of grpc: it was reached, and went."""
_BUNDLES = ("ca-certificates.crt", "ca-bundle.crt")
"""How systems call all their authorities in one file, beside their directory of single ones."""


def open_grpc_target(target: RemoteTarget) -> "GrpcStream":
    """Connect; OSError: not reached; OperationalError 08001: no TLS with it, or not welcome.

    InterfaceError: gRPC's packages are not installed.
    """
    check_extra("server", "a herd+grpc:// URL", "google.protobuf", "grpc")
    tls = _tls(target) if target.has_tls else None
    try:
        return open_grpc_stream(target.host, target.port, target.connect_timeout_s, tls)
    except ConnectionError as error:
        # grpc has nothing but a text to tell them apart.
        reason = str(error)
        if "CERTIFICATE_VERIFY_FAILED" in reason or "Hostname Verification" in reason:
            text = reason.rpartition("CERTIFICATE_VERIFY_FAILED: ")[2].removesuffix(": OK")
            raise not_trusted(target, text) from None
        if any(words in reason for words in _ENDED):
            raise not_welcome(target, reason) from error
        raise


def _tls(target: RemoteTarget) -> "GrpcTls":
    from herdpy.driver.grpc_stream import GrpcTls

    check_files(target)
    certificate, key = target.tls_certificate, target.tls_key or target.tls_certificate
    return GrpcTls(
        target.tls_name,
        _authority(target.tls_authority),
        Path(key).read_bytes() if certificate else None,
        Path(certificate).read_bytes() if certificate else None,
    )


def _authority(path: str) -> bytes | None:
    """Return the authorities of a file, or those of the system, or None: it names none."""
    if path:
        return Path(path).read_bytes()
    known = ssl.get_default_verify_paths()
    files = [Path(known.cafile)] if known.cafile else []
    if known.capath:
        files += [Path(known.capath, name) for name in _BUNDLES]
    return next((file.read_bytes() for file in files if file.is_file()), None)
