"""Attributes that connections and cursors do not have: setting or reading one says what to use.

An attribute of another driver (sqlite3's row_factory) that is set here would have no effect, and
the program would go on as if it had.
"""

from typing import Any, NoReturn

from herdpy import errors
from herdpy.errors import closest

_HINTS = {
    "row_factory": "rows are tuples; cursor.description has their names, fetch_arrow_table() and "
    "to_df() give columns by name",
    "isolation_level": "it is the connection's",
    "text_factory": "TEXT is str and BYTEA is bytes, always",
    "total_changes": "cursor.rowcount has the rows that a statement wrote",
    "itersize": "rows stream; fetchmany(n) and fetch_record_batch(n) say how many at a time",
}


class PublicErrors:
    """PEP 249's errors as attributes of a connection, for code that has only that."""

    __slots__ = ()

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError


class Strict:
    """Base of what programs hold: refuses attributes that its class does not have."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        try:
            object.__setattr__(self, name, value)
        except AttributeError:
            if hasattr(type(self), name):  # one without setter: Python says so
                raise
            refuse(self, name)

    def __getattr__(self, name: str) -> NoReturn:
        refuse(self, name)


class Foreign:
    """An attribute of other drivers, for a class whose own are set too often for Strict."""

    __slots__ = ("_name",)

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        refuse(owner if instance is None else instance, self._name)

    def __set__(self, instance: object, _value: object) -> None:
        refuse(instance, self._name)


def refuse(instance: object, name: str) -> NoReturn:
    """Raise AttributeError with a hint."""
    kind = instance if isinstance(instance, type) else type(instance)
    hint = _HINTS.get(name)
    if hint is None:
        known = [each for each in dir(kind) if not each.startswith("_")]
        close = closest(name, known)
        hint = f"did you mean {close}?" if close else "it takes none but its own"
    raise AttributeError(
        f"{kind.__name__} has no attribute {name!r}: {hint}", name=name, obj=instance
    )
