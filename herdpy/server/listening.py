"""What is said of an address that cannot be listened on."""

from collections.abc import Generator
from contextlib import contextmanager
from errno import EACCES, EADDRINUSE

from herdpy.errors import OperationalError


@contextmanager
def listening(command: str, host: str, port: int, option: str) -> Generator[None]:
    """Say which address cannot be had; `option` is how its port is chosen."""
    try:
        yield
    except OSError as error:
        is_of_port = error.errno in (EADDRINUSE, EACCES)
        raise OperationalError(
            f"{command}: cannot listen on {host}:{port}: {error.strerror or error}",
            hint=f"choose another port ({option})"
            if is_of_port
            else "choose an address of this machine",
        ) from error
