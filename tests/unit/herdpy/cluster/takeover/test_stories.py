"""A leader that is silent while its session lives: who takes over when, and who not.

`python -m tests.fixtures.silence_stories` writes the transcripts anew.
"""

from pathlib import Path

import pytest

from herdpy.cluster.part import State
from tests.fixtures.silence_stories import Story, stories, told

_STORIES = Path(__file__).with_name("stories.txt")


def test_the_stories_are_those_that_were_read() -> None:
    assert told() == _STORIES.read_text()


@pytest.mark.parametrize("story", stories(), ids=lambda story: story.title)
def test_a_node_leads_in_the_end(story: Story) -> None:
    story.run()
    leading = [name for name, each in story.machines.items() if each.state is State.LEADING]
    assert leading == [story.leader]
