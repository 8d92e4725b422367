"""The settings that a served session begins with: asked for, or of the role, or of the server.

A database opened as a directory has none of the server's. On the server's loop.
"""

from dataclasses import replace

from herdpy.config import ServerConfig
from herdpy.errors import ProgrammingError
from herdpy.model.access import Access, User
from herdpy.model.durability import Durability
from herdpy.model.role_settings import TIMEOUTS, capped, check_within, with_defaults
from herdpy.model.settings import Settings
from herdpy.proto.messages import NO_LIMIT_S, Hello


def session_settings(
    hello: Hello, config: ServerConfig, access: Access, user: User | None
) -> Settings:
    """Return the settings of a session; 22023, and 42501: it asks for more than its user may have.

    What is not asked for is no more than that either.
    """
    settings = Settings(
        durability=_durability(hello.durability),
        statement_timeout_s=config.statement_timeout_s,
        lock_timeout_s=config.lock_timeout_s,
        idle_in_transaction_timeout_s=config.idle_in_transaction_timeout_s,
        application_name=hello.client,
    )
    maxima = {}
    if user is not None:
        maxima = access.maxima_of(user.name)
        settings = capped(with_defaults(settings, access.defaults_of(user.name)), maxima)
    asked = {field: getattr(hello, field) for field in TIMEOUTS.values()}
    found = {
        field: 0.0 if value == NO_LIMIT_S else value for field, value in asked.items() if value
    }
    if found:
        settings = replace(settings, **found)
        check_within(settings, maxima)
    return settings


def _durability(name: str | None) -> Durability:
    if name is None:
        return Durability.SYNC
    try:
        return Durability(name)
    except ValueError:
        raise ProgrammingError(
            f"durability: expected 'sync', 'os' or 'none', found {name!r}", sqlstate="22023"
        ) from None
