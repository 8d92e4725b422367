"""Errors on the wire: the class by its name, so that a program catches the same one everywhere."""

import inspect

from herdpy import errors
from herdpy.errors import Error, Retry
from herdpy.proto.messages import TEXT_BYTES_MAX, Failed

_CLASSES: dict[str, type[Error]] = {
    name: item
    for name, item in vars(errors).items()
    if inspect.isclass(item) and issubclass(item, Error)
}
_RETRIES = {choice.value: choice for choice in Retry}


def to_failed(request: int, error: Error, *, in_transaction: bool) -> Failed:
    """Return the message of an error; a class that the driver does not have becomes its base."""
    name = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _CLASSES)
    return Failed(
        request,
        in_transaction,
        name,
        _cut(error.message),
        error.sqlstate,
        error.retry.value,
        None if error.hint is None else _cut(error.hint),
        error.position,
        error.leader,
    )


def _cut(text: str) -> str:
    return text.encode(errors="backslashreplace")[:TEXT_BYTES_MAX].decode(errors="ignore")


def from_failed(failed: Failed) -> Error:
    error = _CLASSES.get(failed.kind, errors.DatabaseError)(
        failed.message,
        sqlstate=failed.sqlstate,
        retry=_RETRIES.get(failed.retry),
        hint=failed.hint,
        position=failed.position,
    )
    error.leader = failed.leader
    return error
