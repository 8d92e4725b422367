"""Rolls, also during a take-over, fences, lost answers of the list: who writes, and what stays.

`python -m tests.fixtures.log_stories` writes the transcripts anew.
"""

from pathlib import Path

import pytest

from tests.fixtures.log_stories import STORIES, played, told

_STORIES = Path(__file__).with_name("log_stories.txt")


def test_the_stories_are_those_that_were_read() -> None:
    assert told() == _STORIES.read_text()


@pytest.mark.parametrize("title", STORIES)
def test_what_was_acknowledged_is_there_once_and_nothing_else(title: str) -> None:
    story = played(title)
    assert story.found == story.acknowledged
    assert not set(story.refused) & set(story.found)
    assert not story.orphans
