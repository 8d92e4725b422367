"""Files that hold secrets: their owner alone may use them."""

import os
import stat
from typing import IO, Any


def exposed_mode(file: IO[Any]) -> int | None:
    """Return the mode of an opened file if others than its owner can read or change it."""
    mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    return mode if mode & (stat.S_IRWXG | stat.S_IRWXO) else None
