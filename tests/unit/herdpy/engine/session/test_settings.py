"""Settings of a session: within bounds, shown as SET takes them, and back to what they were."""

from typing import Any

import pytest

from herdpy.errors import Error
from herdpy.limits import application_name_bytes_max, timeout_seconds_max
from herdpy.model.settings import Settings, change_option, show_option

TIMES = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("text", ["25d", "9" * 400, "2147483.5s"])
def test_a_time_has_its_limit(name: str, text: str) -> None:
    with pytest.raises(Error, match="expected 0 to") as caught:
        change_option(Settings(), Settings(), name, text)
    assert caught.value.sqlstate == "22023"


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, 1e300, "5", True])
def test_what_is_no_time(value: Any) -> None:
    with pytest.raises(Error, match="lock_timeout_s: expected 0 to") as caught:
        Settings(lock_timeout_s=value)
    assert caught.value.sqlstate == "22023"


@pytest.mark.parametrize("value", [0, 1, 0.0005, 1e-6, 1234.5678, 1e6, 0.1, timeout_seconds_max])
def test_what_is_shown_can_be_set(value: float) -> None:
    settings = Settings(lock_timeout_s=value)
    shown = show_option(settings, "lock_timeout")
    again = change_option(Settings(), Settings(), "lock_timeout", shown)
    assert again.lock_timeout_s == pytest.approx(value, abs=1e-9)
    assert show_option(again, "lock_timeout") == shown


def test_default_is_what_it_was() -> None:
    defaults = Settings(lock_timeout_s=1 / 3, statement_timeout_s=1e-8, application_name="x")
    settings = defaults
    for name, text in [
        ("lock_timeout", "5s"),
        ("statement_timeout", "6s"),
        ("idle_in_transaction_session_timeout", "7s"),
        ("application_name", "y"),
        ("synchronous_commit", "off"),
        ("timezone", "UTC"),
    ]:
        settings = change_option(settings, defaults, name, text)
    assert settings != defaults
    for name in (*TIMES, "application_name", "synchronous_commit", "timezone", "client_encoding"):
        settings = change_option(settings, defaults, name, None)
    assert settings == defaults


def test_a_name_has_its_limit() -> None:
    longest = "é" * (application_name_bytes_max // 2)
    settings = change_option(Settings(), Settings(), "application_name", longest)
    assert settings.application_name == longest
    with pytest.raises(Error, match="at most 256 bytes, found 257") as caught:
        change_option(settings, Settings(), "application_name", longest + "x")
    assert caught.value.sqlstate == "22023"
