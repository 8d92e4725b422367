"""Texts that come again go by number, and never by the number of another."""

from random import Random

from herdpy.driver.remote.kept_texts import KeptTexts
from herdpy.proto.messages import KEPT_CHARACTERS_MAX, KEPT_MAX, Execute, ExecuteKept


def test_the_second_time_asks_and_the_third_goes_by_number() -> None:
    kept = KeptTexts()
    assert kept.message(1, "a", [1], 7, 6) == Execute(1, "a", [1], 7, 6)
    kept.has_run("a")
    assert kept.message(2, "a", [2], 0, 0) == Execute(2, "a", [2], keep=1)
    assert kept.message(3, "a", [3], 0, 0) == Execute(3, "a", [3], keep=1)  # the other had failed
    kept.has_run("a")
    assert kept.message(4, "a", [4], 8, 7) == ExecuteKept(4, 1, [4], 8, 7)


def test_long_texts_are_not_kept() -> None:
    kept = KeptTexts()
    text = "x" * (KEPT_CHARACTERS_MAX + 1)
    for request in range(3):
        assert kept.message(request, text, None, 0, 0) == Execute(request, text, None)
        kept.has_run(text)


def test_a_number_means_what_the_server_has_under_it(seed: int) -> None:
    random = Random(seed)
    kept = KeptTexts()
    server: dict[int, str] = {}
    by_number = 0
    for request in range(20_000):
        text = f"text {int(random.expovariate(1 / 150))}"
        message = kept.message(request, text, None, 0, 0)
        if isinstance(message, ExecuteKept):
            assert server[message.statement] == text
            by_number += 1
        else:
            assert isinstance(message, Execute)
            if message.keep:
                server[message.keep] = text
        if random.random() < 0.9:  # else it failed
            kept.has_run(text)
    assert by_number > 10_000
    assert len(server) == KEPT_MAX
