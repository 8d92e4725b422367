"""The public DB-API suite (package dbapi-compliance): memory, a directory, TCP and gRPC.

And herdpy.aio, made to look like a module of PEP 249 (tests/fixtures/faces.py), over all of them.
Only the two tests that the suite itself leaves to the driver are overridden, and the one of which
it says that reasonable persons differ about it: a second close() does nothing, as elsewhere.
"""

import shutil
import tempfile
import warnings
from contextlib import ExitStack

import dbapi20
import pytest

import herdpy
from tests.fixtures.faces import AsyncFace, LoopThread
from tests.fixtures.targets import open_target


class Compliance(dbapi20.DatabaseAPI20Test):
    __test__ = False  # the base; the subclasses below are run

    driver = herdpy

    def test_nextset(self) -> None:
        connection = self._connect()
        with pytest.raises(herdpy.NotSupportedError):
            connection.cursor().nextset()
        connection.close()

    def test_setoutputsize(self) -> None:
        connection = self._connect()
        assert connection.cursor().setoutputsize(1000, 0) is None
        connection.close()

    def test_non_idempotent_close(self) -> None:
        connection = self._connect()
        connection.close()
        connection.close()
        with pytest.raises(herdpy.InterfaceError):
            connection.cursor()


class TestInMemory(Compliance):
    __test__ = True

    connect_args = (":memory:",)


class TestOnDirectory(Compliance):
    __test__ = True

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.connect_args = (self.folder + "/data",)

    def tearDown(self) -> None:
        super().tearDown()
        shutil.rmtree(self.folder)


class OverNetwork(Compliance):
    transport = ""

    def setUp(self) -> None:
        self.opened = ExitStack()
        self.connect_args = (self.opened.enter_context(open_target(self.transport)),)

    def tearDown(self) -> None:
        try:
            super().tearDown()
        finally:
            self.opened.close()


class TestOverTcp(OverNetwork):
    __test__ = True

    transport = "tcp"


class TestOverGrpc(OverNetwork):
    __test__ = True

    transport = "grpc"


class AsyncFaceOf(OverNetwork):
    """One loop for each test."""

    def setUp(self) -> None:
        super().setUp()
        self.loop = LoopThread()
        self.driver = AsyncFace(self.loop)

    def tearDown(self) -> None:
        try:
            super().tearDown()
        finally:
            self.loop.close()


class TestAsyncInMemory(AsyncFaceOf):
    __test__ = True

    transport = "local"


class TestAsyncOverTcp(AsyncFaceOf):
    __test__ = True

    transport = "tcp"


class TestAsyncOverGrpc(AsyncFaceOf):
    __test__ = True

    transport = "grpc"


def test_the_suite_is_whole() -> None:
    names = [name for name in dir(dbapi20.DatabaseAPI20Test) if name.startswith("test_")]
    own = [name for name in vars(Compliance) if name.startswith("test_")]
    assert len(names) == 36
    assert sorted(own) == ["test_nextset", "test_non_idempotent_close", "test_setoutputsize"]
    assert warnings.filters, "warnings are errors here, so a leaked connection is seen"
