"""Events one after the other, under load, and the reading of all copies in the end."""

import random
import time
from collections.abc import Callable
from pathlib import Path

from tests.fixtures.real_cluster import Leader, RunningCluster, wait_for
from tests.kill_cluster.clients import CLIENTS, Load, read_all, set_up
from tests.kill_cluster.events import EVENTS, SESSION_S, kind_of
from tests.kill_cluster.history import Recorder, check, read
from tests.kill_cluster.leaderships import leaderships
from tests.kill_cluster.silence import silences

OUTPUT = Path("build/kill-cluster")
_CALM_S = 1.0


class Campaign:
    """One life of a cluster; run() once."""

    def __init__(
        self,
        cluster: RunningCluster,
        file: Path,
        rounds: int,
        seed: int,
        names: tuple[str, ...],
        say: Callable[[str], object],
    ) -> None:
        self._cluster = cluster
        self._rounds = rounds
        self._seed = seed
        self._names = names
        self._say = say
        self._recorder = Recorder(file)
        self._window = 0

    def run(self) -> None:
        """Play all; AssertionError: something does not end or does not begin, CheckError."""
        try:
            self._run()
        finally:
            self._recorder.close()

    def _run(self) -> None:
        cluster, rng = self._cluster, random.Random(f"{self._seed} events")
        self._recorder.write({"op": "setup", "seed": self._seed, "session_timeout_s": SESSION_S})
        with cluster.connect(autocommit=True) as connection:
            set_up(connection, self._rounds)
        nodes = [each.address for each in cluster.of_kind("node")]
        urls = (cluster.dsn, f"herd://{','.join(nodes)}/{cluster.tablespace}")
        load = Load(urls, self._recorder, self._seed, lambda: self._window)
        try:
            self._wait_answers(load)
            for number in range(self._rounds):
                self._play(number, rng, load)
        finally:
            load.end()
        self._note_leaderships()
        self._read_copies()

    def _play(self, number: int, rng: random.Random, load: Load) -> None:
        kind = kind_of(number, self._seed, self._names)
        time.sleep(_CALM_S * rng.random())
        done = EVENTS[kind](self._cluster, rng)
        healed_s = time.monotonic()
        self._wait_answers(load)
        self._window += 1
        end_s = time.monotonic()
        self._recorder.write(
            {"op": "event", "kind": kind, "names": done.names, "begin": done.begin, "end": end_s}
        )
        self._say(
            f"{number + 1:3} {kind:18} {'+'.join(done.names):12} as before after "
            f"{healed_s - done.begin:4.1f} s, all clients go on after {end_s - done.begin:4.1f} s"
        )

    def _wait_answers(self, load: Load) -> None:
        """Wait until each client has begun something that went well."""
        now_s = time.monotonic()

        def are_there() -> bool:
            load.check()
            return self._recorder.all_answered_since(now_s, CLIENTS)

        wait_for(are_there, "a client has no answer", self._cluster.warnings)

    def _note_leaderships(self) -> None:
        """Write down from the nodes' logs when each has come to lead."""
        wall_s = time.time() - time.monotonic()
        for each in self._cluster.of_kind("node"):
            for record in leaderships(each.name, each.log.read_text(), wall_s):
                self._recorder.write(record)

    def _read_copies(self) -> None:
        """Read all rows on each node: it leads, and resigns for the next one."""
        cluster = self._cluster
        leader: Leader | None = None
        for _ in cluster.of_kind("node"):
            epoch = 0 if leader is None else leader.epoch
            if leader is not None:
                cluster.terminate(leader.node)
            leader = cluster.leader(not_under=epoch)
            with cluster.connect(not_under=epoch, autocommit=True) as connection:
                self._recorder.write({"op": "end", "node": leader.node, **read_all(connection)})


def prove(cluster: RunningCluster, file: Path, seed: int, others: int = 1) -> None:
    """Play a leader's death and some of the other kinds once each, for a test."""
    chosen = random.Random(seed).sample([each for each in EVENTS if each != "kill leader"], others)
    names = ("kill leader", *chosen)
    Campaign(cluster, file, len(names), seed, names, lambda line: None).run()
    records = list(read(file))
    verdict = check(records)
    assert verdict.acknowledged > 0
    assert verdict.looks > 0
    assert verdict.states == len(cluster.of_kind("node"))
    found = {kind: len(each) for kind, each in silences(records).items()}
    assert found == dict.fromkeys(names, CLIENTS)
