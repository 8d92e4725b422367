"""AuditFile: the file of the audit log, which grows and is never read here. Any thread."""

import os


class AuditFile:
    """Lines at the end of a file that only its owner reads."""

    def __init__(self, path: str) -> None:
        """OSError: it cannot be written."""
        self._path = path
        self._descriptor = _open(path)

    def write(self, line: bytes) -> None:
        """Write a whole line; OSError."""
        os.write(self._descriptor, line)

    def reopen(self) -> None:
        """Go on in a new file where the old one was renamed; OSError: in the old one."""
        opened = _open(self._path)
        os.dup2(opened, self._descriptor, inheritable=False)
        os.close(opened)

    def close(self) -> None:
        os.close(self._descriptor)


def _open(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
