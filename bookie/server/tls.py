"""The TLS context of a bookie, from files in PEM format; read once, at the start."""

import ssl

from bookie.errors import BookieStartError


def server_context(
    certificate_path: str, key_path: str, trust_path: str | None = None
) -> ssl.SSLContext:
    """Return what START_TLS uses; trust_path: clients must show a certificate signed by these.

    BookieStartError names the file that cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate_path, key_path)
    except OSError as error:  # ssl.SSLError is one
        raise BookieStartError(
            f"TLS: cannot use certificate {certificate_path} with key {key_path}: {error}; "
            "expected two files in PEM format that belong together"
        ) from error
    if trust_path is not None:
        try:
            context.load_verify_locations(trust_path)
        except OSError as error:
            raise BookieStartError(
                f"TLS: cannot use the trusted certificates in {trust_path}: {error}; expected a "
                "file in PEM format"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context
