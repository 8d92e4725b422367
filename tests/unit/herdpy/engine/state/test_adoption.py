"""Staged rows against a model: every operation, by rows and by pages, over restarts and leases."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import herdpy
from bookie.runtime.os_disk import OsDisk
from herdpy.engine.maintenance.doctor import examine
from herdpy.engine.state import page_adoption

_SEEDS = 12
_STEPS = 12
_OPERATIONS = ("append", "upsert", "upsert", "replace", "ignore", "delete", "update")
_TYPES = {"INTEGER": pa.int32(), "TEXT": pa.string(), "DOUBLE": pa.float64()}
Row = tuple[Any, ...]


class _World:
    """One directory, and what its table t (k, j, v, n) has to hold."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.rng = rng
        self._path = str(path / "data")
        self.conn = herdpy.connect(self._path, autocommit=True)
        self._type = rng.choice(list(_TYPES))
        self._has_two = rng.random() < 0.5
        self._key_count = rng.choice([30, 300, 9_000])
        self._model: dict[Any, Row] = {}
        self._jobs = 0
        end = ", PRIMARY KEY (k, j))" if self._has_two else ", PRIMARY KEY (k))"
        self.conn.execute(f"CREATE TABLE t (k {self._type}, j INTEGER, v TEXT, n INTEGER{end}")
        self.leases: list[tuple[Any, list[Row]]] = []

    def _key(self, row: Row) -> Any:
        return row[:2] if self._has_two else row[:1]

    def _row(self, step: int) -> Row:
        number = self.rng.randrange(self._key_count)
        keys = {"INTEGER": number, "TEXT": f"k{number}", "DOUBLE": number / 2}
        text = self.rng.choice(["x", "y" * self.rng.randrange(30)])
        return (keys[self._type], self.rng.randrange(2), text, step)

    def act(self, step: int) -> None:
        choice = self.rng.random()
        if choice < 0.2:
            self.conn.checkpoint()
        elif choice < 0.4:
            row = self._row(step)
            self.conn.execute("UPSERT INTO t VALUES (?, ?, ?, ?)", row)
            self._model[self._key(row)] = row
            if self.rng.random() < 0.5:
                gone = self._model.pop(self.rng.choice(list(self._model)))
                self.conn.execute("DELETE FROM t WHERE k = ? AND j = ?", gone[:2])
        elif choice < 0.45:
            self.reopen()
        elif choice < 0.5:
            self.leases.append((self.conn.lease(600), sorted(self._model.values())))
        else:
            self._stage(step, self.rng.choice(_OPERATIONS))

    def reopen(self) -> None:
        self.conn.close()
        self.conn = herdpy.connect(self._path, autocommit=True)

    def _stage(self, step: int, operation: str) -> None:
        self._jobs += 1
        job = self.conn.begin_staging("t", operation=operation, job=f"job {self._jobs}")
        staged: list[Row] = []
        tokens: list[Any] = []
        may_repeat = operation not in ("append", "replace") or self.rng.random() < 0.1
        for task in range(self.rng.randrange(1, 4)):
            stage = self.conn.stage(job, task)
            for _ in range(self.rng.randrange(1, 4)):
                size = self.rng.choice([1, 20, self._key_count])
                rows = [self._row(step) for _ in range(size)]
                if not may_repeat:
                    known = {self._key(row) for row in staged}
                    known |= self._model.keys() if operation == "append" else set()
                    fresh = {self._key(row): row for row in rows if self._key(row) not in known}
                    rows = list(fresh.values())
                if rows:
                    stage.add(self._data(rows, operation))
                    staged += rows
                if self.rng.random() < 0.3:
                    self.conn.checkpoint()
            tokens.append(stage.finish())
        self._commit(job, operation, tokens, staged)

    def _data(self, rows: list[Row], operation: str) -> pa.Table:
        keys = ["k", "j"] if self._has_two else ["k"]
        names = {"delete": keys, "update": [*keys, "n"]}.get(operation, ["k", "j", "v", "n"])
        kinds = {"k": _TYPES[self._type], "j": pa.int32(), "v": pa.string(), "n": pa.int32()}
        columns = dict(zip(kinds, zip(*rows, strict=True), strict=True))
        return pa.table({name: pa.array(columns[name], kinds[name]) for name in names})

    def _commit(self, job: str, operation: str, tokens: list[Any], staged: list[Row]) -> None:
        net: dict[Any, Row] = {}
        for row in staged:
            if not (operation == "ignore" and self._key(row) in net):
                net[self._key(row)] = row
        is_repeated = len(net) < len(staged)
        if operation == "append":
            is_repeated = is_repeated or not net.keys().isdisjoint(self._model)
        if operation in ("append", "replace") and is_repeated:
            with pytest.raises(herdpy.IntegrityError):
                self.conn.commit_staging(job, tokens)
            self.conn.abort_staging(job)
            return
        position = self.conn.commit_staging(job, tokens)
        assert self.conn.commit_position(job) == position
        model = self._model
        changes: dict[str, Callable[[], dict[Any, Row]]] = {
            "append": lambda: {**model, **net},
            "upsert": lambda: {**model, **net},
            "replace": lambda: net,
            "ignore": lambda: {**net, **model},
            "delete": lambda: {key: row for key, row in model.items() if key not in net},
            "update": lambda: {
                key: (*row[:3], net[key][3]) if key in net else row for key, row in model.items()
            },
        }
        self._model = changes[operation]()

    def check(self) -> None:
        conn, model = self.conn, self._model
        assert sorted(conn.execute("SELECT * FROM t").fetchall()) == sorted(model.values())
        for key in self.rng.sample(list(model), min(3, len(model))):
            found = conn.execute("SELECT * FROM t WHERE k = ? AND j = ?", model[key][:2])
            assert found.fetchall() == [model[key]]

    def check_leases(self) -> None:
        for lease, rows in self.leases:
            self.conn.execute("BEGIN")
            self.conn.execute(f"SET TRANSACTION SNAPSHOT '{lease.id}'")
            assert sorted(self.conn.execute("SELECT * FROM t").fetchall()) == rows
            self.conn.rollback()


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(_SEEDS))
@pytest.mark.parametrize("few_rows", [0, 40])
def test_every_operation_against_a_model(
    seed: int, number: int, few_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_adoption, "FEW_ROWS", few_rows)
    world = _World(tmp_path, random.Random(seed * 1000 + number))
    for step in range(_STEPS):
        world.act(step)
        world.check()
    world.check_leases()
    world.reopen()
    world.check()
    world.check_leases()
    world.conn.close()
    assert not examine(OsDisk(str(tmp_path / "data")), "data").damages
