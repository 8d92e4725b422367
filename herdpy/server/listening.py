"""What is said of an address that cannot be listened on."""

from collections.abc import Generator
from contextlib import contextmanager

from herdpy.errors import OperationalError


@contextmanager
def listening(command: str, host: str, port: int, option: str) -> Generator[None]:
    """Say which address cannot be had; `option` is how it is chosen."""
    try:
        yield
    except OSError as error:
        raise OperationalError(
            f"{command}: cannot listen on {host}:{port}: {error.strerror or error}",
            hint=f"choose another port ({option})",
        ) from error
