"""A sample of what `make kill-staging` does at length, and proof that its check can see."""

from collections.abc import Iterator

import pytest

import herdpy
from tests.crash.kill import BrokenPromiseError
from tests.crash.kill_staging import Job, check, run
from tests.fixtures.servers import running_server


@pytest.mark.integration
@pytest.mark.sample
def test_a_killed_server_doubles_nothing_and_loses_nothing(seed: int) -> None:
    assert run(2, seed) > 0


@pytest.fixture
def url() -> Iterator[str]:
    with running_server() as server:
        with herdpy.connect(server.url, autocommit=True) as conn:
            conn.execute("CREATE TABLE facts (id BIGINT PRIMARY KEY, job BIGINT NOT NULL)")
        yield server.url


def committed(url: str) -> Job:
    job = Job(url, 0)
    job.run()
    job.raise_errors()
    check(url, [job])
    return job


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("DELETE FROM facts WHERE id = 1", "rows by job"),
        ("INSERT INTO facts VALUES (-1, 0)", "rows by job"),
    ],
)
def test_the_check_sees_rows(url: str, statement: str, complaint: str) -> None:
    job = committed(url)
    with herdpy.connect(url, autocommit=True) as conn:
        conn.execute(statement)
    with pytest.raises(BrokenPromiseError, match=complaint):
        check(url, [job])


def test_the_check_sees_what_is_left(url: str) -> None:
    job = committed(url)
    with herdpy.connect(url, autocommit=True) as conn:
        conn.begin_staging("facts", job="left")
    with pytest.raises(BrokenPromiseError, match="left"):
        check(url, [job])
    job.position = "another"
    with pytest.raises(BrokenPromiseError, match="not where"):
        check(url, [job])
