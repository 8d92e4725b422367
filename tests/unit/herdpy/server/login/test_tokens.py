"""Tokens: who may call by one, and until when."""

import pytest

from bookie.runtime.os_rng import OsRng
from herdpy.errors import OperationalError
from herdpy.server.login import login_tokens
from herdpy.server.login.login_tokens import Proven, Tokens
from tests.fixtures.engines import Engine
from tests.sim.clock import SimulatedClock

LIFETIME_S = 60.0


class World:
    """A database with the users ada and bob, and tokens of theirs."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.run("CREATE USER ada PASSWORD 'first'", "CREATE USER bob PASSWORD 'other'")
        self.clock = SimulatedClock()
        self.id = self.engine.database.entry.id
        self.tokens = Tokens(self.login_in, self.clock, OsRng(), LIFETIME_S, lambda: self.id)

    def login_in(self, tablespace_id: bytes, user: str) -> Proven | None:
        login = self.engine.database.login(user)
        return None if login is None else Proven(tablespace_id, login)

    def run(self, *texts: str) -> None:
        session = self.engine.session(autocommit=True)
        for text in texts:
            session.execute(text).close()
        session.close()

    def give(
        self, user: str = "ada", certificate: bytes = b"", tablespace_id: bytes | None = None
    ) -> str:
        proven = self.login_in(self.id if tablespace_id is None else tablespace_id, user)
        assert proven is not None
        assert proven.login.verifier is not None
        return self.tokens.give(proven, certificate)

    def is_good(self, token: str, certificate: bytes = b"") -> bool:
        try:
            return self.tokens.proven_by(token, certificate).user.name == "ada"
        except OperationalError as error:
            return error.sqlstate != "28000"


@pytest.fixture
def world() -> World:
    return World()


def test_a_token_counts_for_its_time(world: World) -> None:
    token = world.give()
    world.clock.advance(LIFETIME_S - 0.001)
    assert world.is_good(token)
    world.clock.advance(0.001)
    assert not world.is_good(token)
    assert len(world.tokens) == 0


@pytest.mark.parametrize(
    "text",
    [
        "ALTER USER ada PASSWORD 'second'",
        "ALTER USER ada PASSWORD 'first'",  # it is a new one all the same
        "ALTER USER ada PASSWORD NULL",
        "ALTER USER ada NOLOGIN",
        "DROP USER ada",
    ],
)
def test_it_ends_with_the_password(world: World, text: str) -> None:
    token, other = world.give(), world.give("bob")
    world.run(text)
    assert not world.is_good(token)
    assert world.tokens.proven_by(other, b"").user.name == "bob"
    if text.startswith("DROP"):
        world.run("CREATE USER ada PASSWORD 'first'")
    assert not world.is_good(token)


def test_it_is_of_one_certificate(world: World) -> None:
    with_one, without = world.give(certificate=b"c"), world.give()
    assert world.is_good(with_one, b"c")
    assert not world.is_good(with_one)
    assert not world.is_good(with_one, b"d")
    assert not world.is_good(without, b"c")
    assert world.is_good(with_one, b"c")  # a thief's try takes nothing away


def test_others_are_none(world: World) -> None:
    token = world.give()
    for other in ("", token[:-1], f"{token}=", token.swapcase(), "\udcff", "x" * 100_000):
        assert not world.is_good(other)
    assert world.is_good(token)


def test_the_oldest_go(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_tokens, "TOKENS_OF_USER_MAX", 2)
    monkeypatch.setattr(login_tokens, "TOKENS_MAX", 3)
    first, second, third = world.give(), world.give(), world.give()
    assert [world.is_good(each) for each in (first, second, third)] == [False, True, True]
    world.give("bob")
    world.give("bob")
    assert len(world.tokens) == 3
    assert [world.is_good(each) for each in (second, third)] == [False, True]


def test_a_tablespace_ends_no_tokens_of_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_tokens, "TOKENS_MAX", 10)
    monkeypatch.setattr(login_tokens, "TOKENS_OF_DEFAULT_KEPT", 3)
    of_default = [world.give() for _ in range(4)]
    of_other = [world.give(tablespace_id=b"other") for _ in range(2)]
    many = [world.give(tablespace_id=b"many") for _ in range(20)]
    assert len(world.tokens) == 10
    assert all(map(world.is_good, [*of_default, *of_other, *many[-4:]]))
    # default's beyond what is kept for it are as all others' are.
    more = [world.give() for _ in range(4)]
    assert [world.is_good(each) for each in of_default] == [False, False, True, True]
    assert all(map(world.is_good, [*more, *of_other, *many[-2:]]))
    assert not world.is_good(many[-3])


def test_no_token_is_kept(world: World) -> None:
    token = world.give()
    assert token not in repr(vars(world.tokens))
    assert len(token) == 43


# --- passwords that were proved -------------------------------------------------------------------


def remember(world: World, password: str = "first", certificate: bytes = b"") -> None:
    proven = world.login_in(world.id, "ada")
    assert proven is not None
    world.tokens.remember(proven, password, certificate)


def test_a_password_that_was_proved_counts_as_a_token(world: World) -> None:
    assert world.tokens.remembered(world.id, "ada", "first", b"") is None
    remember(world)
    found = world.tokens.remembered(world.id, "ada", "first", b"")
    assert found is not None
    assert found == world.login_in(world.id, "ada")
    assert found.user.name == "ada"
    for user, password, certificate in (
        ("ada", "First", b""), ("ada", "", b""), ("bob", "first", b""), ("ada", "first", b"c"),
        ("ad", "a\0first", b""), ("nobody", "\udcff", b""),
    ):  # fmt: skip
        assert world.tokens.remembered(world.id, user, password, certificate) is None
    remember(world)
    assert len(world.tokens) == 1
    world.clock.advance(LIFETIME_S)
    assert world.tokens.remembered(world.id, "ada", "first", b"") is None
    assert len(world.tokens) == 0


@pytest.mark.parametrize(
    "text", ["ALTER USER ada PASSWORD 'first'", "ALTER USER ada NOLOGIN", "DROP USER ada"]
)
def test_it_has_to_be_proved_again_when_the_user_has_changed(world: World, text: str) -> None:
    remember(world)
    world.run(text)
    assert world.tokens.remembered(world.id, "ada", "first", b"") is None


def test_no_password_is_kept(world: World) -> None:
    remember(world, "a long password")
    assert "a long password" not in repr(vars(world.tokens))
