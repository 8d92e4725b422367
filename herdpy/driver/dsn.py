"""What connect()'s target names: memory or a directory; servers are refused so far."""

import os
import re
from dataclasses import dataclass

from herdpy.errors import InterfaceError, NotSupportedError

MEMORY = ":memory:"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True, slots=True)
class Target:
    """`path` is the real, absolute path of the directory, None for a database in memory."""

    path: str | None


def parse_target(target: "str | os.PathLike[str]") -> Target:
    """Return what the target names; the directory need not exist.

    Real paths make one database of every spelling and symbolic link. InterfaceError for what is
    no target, NotSupportedError (0A000) for a URL.
    """
    if not isinstance(target, (str, os.PathLike)):
        raise InterfaceError(
            f"connect: expected a path or {MEMORY!r} as target, found {type(target).__name__}"
        )
    text = os.fspath(target)
    if not isinstance(text, str) or not text or "\0" in text:
        raise InterfaceError(
            f"connect: expected a path or {MEMORY!r} as target, found {text!r}",
            hint=f"{MEMORY!r} opens a private database that ends with its connection",
        )
    if text == MEMORY:
        return Target(None)
    scheme = _SCHEME.match(text)
    if scheme is not None:
        raise NotSupportedError(
            f"connect: {scheme[1]}:// targets are not supported yet, found {text!r}",
            hint="name a directory, for example './data'",
        )
    return Target(os.path.realpath(text))
