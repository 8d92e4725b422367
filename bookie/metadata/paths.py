"""Node paths: what is a legal one, its parent, its name.

ZooKeeper's rules, as far as this project needs them: absolute, no empty, "." or ".." part, no NUL.
"""

from bookie.errors import IncorrectParameterError

NODE_BYTES_MAX = 1_000_000
"""Largest data of one node. ZooKeeper closes the connection of a client that sends more than 1
MiB."""


def check_path(path: str) -> str:
    """Return path, or raise IncorrectParameterError."""
    if path == "/":
        return path
    parts = path.split("/")
    if (
        len(parts) < 2
        or parts[0]
        or any(part in ("", ".", "..") or "\0" in part for part in parts[1:])
    ):
        raise IncorrectParameterError(
            f"node path: expected /name/name without an empty part, found {path!r}"
        )
    return path


def check_data(path: str, data: bytes) -> None:
    if len(data) > NODE_BYTES_MAX:
        raise IncorrectParameterError(
            f"{path}: expected at most {NODE_BYTES_MAX} bytes of data, found {len(data)}"
        )


def parent_of(path: str) -> str:
    """Return the path above; of "/" there is none, it is its own."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def join(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"
