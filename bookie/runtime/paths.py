"""Paths of a Disk: relative, POSIX, inside the root; shared by every implementation of Disk."""

from os import strerror


def check_path(path: str) -> str:
    """Return path; ValueError unless it is relative and stays inside the root ("" is the root)."""
    if path == "":
        return path
    if "\0" in path or "\\" in path:
        raise ValueError(f"path {path!r}: expected a POSIX path without NUL and backslash")
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise ValueError(f"path {path!r}: expected names separated by '/', found {part!r}")
    return path


def parent_of(path: str) -> str:
    """Return the path of the directory that holds path; "" for a name in the root."""
    return path.rpartition("/")[0]


def os_error(code: int, path: str) -> OSError:
    """Return the OSError the operating system would raise: its subclass, text and file name."""
    return OSError(code, strerror(code), path)
