"""A command's loop: ended by the process's signals, which are handled as before when it ended."""

import asyncio
import signal

import pytest

from bookie.runtime.os_executors import run, run_until_stopped, stop_event


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_ends_a_command(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    async def main() -> str:
        told = stop_event()
        signal.raise_signal(number)
        await told.wait()
        return "stopped"

    assert run(main()) == "stopped"
    assert signal.getsignal(number) == before


def test_ctrl_c_cancels_what_has_no_stop_event() -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        run(main())


def test_a_command_that_fails_leaves_no_handler_behind() -> None:
    before = signal.getsignal(signal.SIGINT)

    async def main() -> None:
        stop_event()
        raise ValueError

    with pytest.raises(ValueError):
        run(main())
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize("is_told", [True, False])
def test_what_runs_until_it_is_stopped(is_told: bool) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            if is_told:
                signal.raise_signal(signal.SIGTERM)
                await asyncio.Event().wait()
            ended.append("by itself")
        finally:
            ended.append("whole")

    run(run_until_stopped(work()))
    assert ended == (["whole"] if is_told else ["by itself", "whole"])


def test_what_fails_before_it_is_stopped_says_so() -> None:
    async def work() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        run(run_until_stopped(work()))
