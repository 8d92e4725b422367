"""What the server needs of the database that knows the users."""

from typing import Protocol

from herdpy.model.access import User


class Login(Protocol):
    """What is known of one user who wants to log in."""

    @property
    def verifier(self) -> str | None:
        """SCRAM-SHA-256$iterations:salt$stored key:server key; None: no password is valid."""
        ...

    @property
    def may_login(self) -> bool: ...

    @property
    def user(self) -> User:
        """Who logs in: no other user that has the name later."""
        ...


class Authenticator(Protocol):
    """The users; engine/database.py is one. Called on the server's loop, and never waits."""

    @property
    def has_logins(self) -> bool:
        """True when some user can log in with a password."""
        ...

    @property
    def login_secret(self) -> bytes | None:
        """What makes the salts of users who do not exist; None: no password was ever set."""
        ...

    def login(self, user: str) -> Login | None:
        """Return how the user may log in now; None: there is no such user."""
        ...
