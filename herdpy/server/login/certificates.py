"""The names in a client's certificate that a user may have: the common name, or alternative ones.

Of the alternative names those of e-mail addresses and hosts count, as whole texts. A subject with
several common names has none. Any thread.
"""


def names_of(certificate: bytes) -> frozenset[str]:
    """Return the names of a certificate (DER); none of what cannot be read."""
    from asn1crypto.x509 import Certificate

    try:
        read = Certificate.load(certificate)
        found = {
            name.native
            for name in read.subject_alt_name_value or ()
            if name.name in ("rfc822_name", "dns_name")
        }
        common = read.subject.native.get("common_name")
    except (ValueError, TypeError):
        return frozenset()
    return frozenset(found | {common} if isinstance(common, str) else found)
