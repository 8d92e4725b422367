"""What the tests of findings share: a served database as a process, and the marker's arguments.

These tests run over an older commit, too (`make findings OLD=...`), to show that they fail there.
So they use the public API, commands, wire and files only, and nothing of tests/fixtures.
"""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


class Server:
    """`herdpy serve` on one directory, at a free port that it reports itself."""

    def __init__(self, directory: Path, settings: tuple[str, ...]) -> None:
        self.directory = directory
        command = [
            *(sys.executable, "-m", "herdpy.cli", "serve", str(directory), "--port", "0"),
            *(part for setting in settings for part in ("--set", setting)),
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self.process.stdout is not None
        for line in iter(self.process.stdout.readline, ""):
            if "herd://" in line:
                self.url = line.split(" at ")[-1].split()[0]
                return
        raise RuntimeError("the server did not begin to serve")

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers by serve("setting=value", ..., directory=path); killed when the test ends."""
    started: list[Server] = []

    def start(*settings: str, directory: Path | None = None) -> Server:
        server = Server(directory or tmp_path / "data", settings)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()
