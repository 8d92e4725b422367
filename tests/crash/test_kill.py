"""One round of `make kill`, and proof that its check sees what it looks for."""

from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from herdpy.driver import local
from tests.crash import kill


@pytest.fixture(autouse=True)
def _own_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.Options, "config", local.Options.config)  # put back afterwards


@pytest.mark.integration
@pytest.mark.sample
def test_a_killed_process_loses_nothing_that_it_acknowledged(seed: int) -> None:
    tally = kill.run(2, seed, Console(quiet=True))
    assert tally.rounds == 2
    assert tally.survived >= tally.acknowledged


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("UPDATE accounts SET balance = balance + 1 WHERE id = 3", "accounts"),
        ("INSERT INTO transfers VALUES (1, 2, 3, 4)", "half a transfer"),
        ("DELETE FROM transfers WHERE id = 9", "lost"),
    ],
)
def test_the_check_sees(tmp_path: Path, statement: str, complaint: str) -> None:
    directory = str(tmp_path / "db")
    kill.set_up(directory)
    with closing(kill.connect(directory)) as connection:
        connection.execute("INSERT INTO transfers VALUES (9, 2, 2, 0)")
        assert kill.check(directory, {9}, set()) == {9}
        connection.execute(statement)
    with pytest.raises(kill.BrokenPromiseError, match=complaint):
        kill.check(directory, {9}, {9})
