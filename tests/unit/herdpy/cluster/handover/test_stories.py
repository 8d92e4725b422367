"""A hand-over, and the death of either node before and behind each step: who leads in the end.

`python -m tests.fixtures.part_stories` writes the transcripts anew.
"""

from pathlib import Path

import pytest

from tests.fixtures.part_stories import Crash, Story, crashes, told

_STORIES = Path(__file__).with_name("stories.txt")


def test_the_stories_are_those_that_were_read() -> None:
    assert told() == _STORIES.read_text()


@pytest.mark.parametrize("crash", crashes(), ids=str)
def test_one_node_leads_in_the_end_and_never_two(crash: Crash) -> None:
    lines = Story(crash).run().splitlines()
    assert [line for line in lines if line.endswith("leads")] == lines[-1:]
    leader = lines[-1].split()[1]
    assert leader != crash.node or lines[-2].endswith("dies")
