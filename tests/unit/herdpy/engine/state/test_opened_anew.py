"""A log that is opened anew while another thread asks why it has stopped."""

import sys
from contextlib import closing
from types import FrameType
from typing import Any

import pytest

import herdpy
from herdpy.engine.state.tablespace import Tablespace


@pytest.mark.parametrize("line", range(6))
def test_why_it_stopped_is_asked_once(line: int) -> None:
    """From whichever line on the reason is gone, the answer is that reason or that it runs."""
    with closing(herdpy.connect(":memory:")) as connection:
        tablespace: Tablespace = connection.live_session().tablespace
        lines, told = 0, "the disk is gone"

        def trace(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal lines
            if frame.f_code is Tablespace.check_running.__code__:
                if event == "line":
                    if lines == line:
                        tablespace.failure = None
                    lines += 1
                return trace
            return None

        tablespace.failure = herdpy.OperationalError("the disk is gone")
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            tablespace.check_running()
        except herdpy.OperationalError as error:
            told = str(error)
        finally:
            sys.settrace(before)
            tablespace.failure = None
        assert "the disk is gone" in told
        assert lines
