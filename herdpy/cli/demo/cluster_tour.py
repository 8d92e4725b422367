"""The cluster's demo from its first line to its last: a program, and what is killed under it.

The program runs on a directory first, then, with another DSN, on a cluster of processes of this
machine. They are killed, it goes on, and each copy is asked for what the program was told.
"""

import inspect
import random
import shutil
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from rich.box import ROUNDED
from rich.console import Console
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from herdpy.cli.demo import transfers
from herdpy.cli.demo.cluster_processes import ClusterProcesses, wait_for
from herdpy.cli.demo.tour import exit_code
from herdpy.cli.demo.transfers import Found, Program, read_all
from herdpy.driver.connection import connect

_WIDTH_WITHOUT_TERMINAL = 100
_RUN_S = 2.0
"""For which the program runs before, between and behind faults."""
_CALL = """\
pool = herdpy.Pool(dsn)
pool.run(lambda connection: transfer(connection, number, source, target, amount))"""


def run_cluster_demo() -> int:
    """Run the demo and return the exit code: 0 only if nothing was lost and all copies agree."""
    console = Console(
        width=None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL, highlight=False
    )
    directory = Path(tempfile.mkdtemp(prefix="herdpy-demo-"))
    tour = ClusterTour(console, directory)
    try:
        return exit_code(console, tour.run)
    finally:
        tour.close()
        shutil.rmtree(directory, ignore_errors=True)


class ClusterTour:
    def __init__(self, console: Console, directory: Path) -> None:
        self._console = console
        self._directory = directory
        self._cluster: ClusterProcesses | None = None
        self._program: Program | None = None
        self._begun_s = time.monotonic()
        self._pauses: list[tuple[str, float, str]] = []

    def close(self) -> None:
        """End the program and the cluster; repeatable."""
        if self._program is not None:
            self._program.stop()
            self._program.pool.close()
        if self._cluster is not None:
            self._cluster.close()

    def run(self) -> bool:
        """Run every part; return whether nothing was lost and all copies agree."""
        self._show_program()
        if not self._run_on_directory():
            return False
        cluster = self._start_cluster()
        program = self._program = Program(cluster.dsn)
        self._go_on(_RUN_S)
        self._console.print(f"{program.count:,} transfers, each on two of three bookies.")
        self._kill_some(cluster, program)
        program.stop()
        has_passed = self._compare_copies(cluster, program)
        with self._console.status("going down"):
            self.close()
        took_s = time.monotonic() - self._begun_s
        self._console.print(f"\nAll processes have ended. All of it took {took_s:.0f} s.")
        return has_passed

    def _title(self, text: str) -> None:
        self._console.print()
        self._console.print(Rule(Text(text, style="bold"), align="left"))

    # --- one program, two DSNs -------------------------------------------------------------------

    def _show_program(self) -> None:
        self._title("A program")
        source = textwrap.dedent(inspect.getsource(transfers.transfer))
        text = f"{source}\n{_CALL}"
        self._console.print(Syntax(text, "python", background_color="default", word_wrap=True))

    def _show_dsn(self, dsn: str) -> None:
        self._console.print(Text.assemble("dsn = ", (f'"{dsn}"', "bold green")))

    def _run_on_directory(self) -> bool:
        self._title("In a process")
        bank = self._directory / "bank"
        self._show_dsn("./bank")
        program = self._program = Program(str(bank))
        self._go_on(_RUN_S)
        program.stop()
        program.pool.close()
        with connect(str(bank)) as connection:
            found = read_all(connection)
        said = program.complaints(found)
        self._console.print(
            f"{program.count:,} transfers by {transfers.THREADS} threads; {_told(found, said)}"
        )
        return not said

    def _go_on(self, seconds: float) -> None:
        """Let the program run; the Error of a thread."""
        assert self._program is not None
        time.sleep(seconds)
        self._program.has_gone_on(0.0)

    # --- the cluster -----------------------------------------------------------------------------

    def _start_cluster(self) -> ClusterProcesses:
        self._title("On a cluster")
        cluster = self._cluster = ClusterProcesses(self._directory)
        begun_s = time.monotonic()
        with self._console.status("starting ZooKeeper, three bookies and three nodes"):
            cluster.wait_started()
        table = Table("process", "pid", "address", box=ROUNDED, border_style="dim")
        for each in cluster.programs:
            table.add_row(each["name"], str(each["pid"]), each["address"])
        self._console.print(table)
        self._show_dsn(cluster.dsn)
        leader = cluster.leader()
        self._console.print(
            f"{leader.node} leads under epoch {leader.epoch}, after "
            f"{time.monotonic() - begun_s:.0f} s."
        )
        return cluster

    def _kill_some(self, cluster: ClusterProcesses, program: Program) -> None:
        self._title("kill -9")
        bookies = random.sample(cluster.names("bookie"), 2)
        self._kill(cluster, program, "the leader", cluster.leader().node)
        self._kill(cluster, program, "a bookie", bookies[0])
        self._kill(cluster, program, "leader and bookie", cluster.leader().node, bookies[1])
        table = Table("killed", "pause", "then leads", box=ROUNDED, border_style="dim")
        table.columns[1].justify = "right"
        for what, pause_s, leader in self._pauses:
            table.add_row(what, _time_text(pause_s), leader)
        self._console.print(table)
        self._console.print(
            "A pause is the longest time in which one of the threads was told of no commit. The"
            " session of a\ndead leader ends after 2 s; then a follower takes over.",
            style="dim",
        )

    def _kill(self, cluster: ClusterProcesses, program: Program, what: str, *names: str) -> None:
        """Kill processes, wait until the program goes on, and start them again."""
        before = cluster.leader()
        pids = ", ".join(f"{name} (pid {cluster.pid(name)})" for name in names)
        self._console.print(Text.assemble(("✗ ", "bold red"), f"{what}: {pids}"))
        killed_s = time.monotonic()
        cluster.kill(*names)
        with self._console.status("waiting for the next commits"):
            leader = before
            if before.node in names:
                leader = cluster.leader(not_under=before.epoch)
            wait_for(lambda: program.has_gone_on(killed_s), "commits")
            self._go_on(_RUN_S / 2)
        pause_s = program.pause_s(killed_s)
        style = "bold green"
        self._console.print(
            Text.assemble(
                ("✓ ", style),
                f"goes on after {_time_text(pause_s)}: {leader.node} leads under epoch "
                f"{leader.epoch}, {program.count:,} transfers",
            )
        )
        self._pauses.append((f"{what}: {', '.join(names)}", pause_s, leader.node))
        with self._console.status(f"starting {' and '.join(names)} again"):
            cluster.start(*names)

    # --- the proof -------------------------------------------------------------------------------

    def _compare_copies(self, cluster: ClusterProcesses, program: Program) -> bool:
        """Read all rows on each node, while it leads: the one before resigns."""
        self._title("What each copy has")
        table = Table(
            "copy of", "transfers", "total", "as promised", box=ROUNDED, border_style="dim"
        )
        for column in table.columns[1:3]:
            column.justify = "right"
        copies: list[Found] = []
        said: list[str] = []
        count = len(cluster.names("node"))
        with self._console.status("each node leads for a moment"):
            for number in range(count):
                leader = cluster.leader()
                with connect(cluster.dsn) as connection:
                    found = read_all(connection)
                of_this = program.complaints(found)
                copies.append(found)
                said += [f"{leader.node}: {each}" for each in of_this]
                verdict = Text("✗", "bold red") if of_this else Text("✓", "bold green")
                table.add_row(leader.node, f"{len(found.transfers):,}", f"{found.total:,}", verdict)
                if number < count - 1:
                    cluster.terminate(leader.node)
                    cluster.leader(not_under=leader.epoch)
        if any(found != copies[0] for found in copies):
            said.append("the copies differ")
        self._console.print(table)
        for each in said:
            self._console.print(Text.assemble(("✗ ", "bold red"), each))
        if not said:
            self._console.print(
                f"[bold green]✓ {program.count:,} transfers acknowledged, 0 lost, 0 half, 0 twice; "
                f"{len(program.unknown)} of unknown fate; {count} equal copies.[/]"
            )
        return not said


def _told(found: Found, said: list[str]) -> str:
    return "; ".join(said) or f"the total is {found.total:,}, as it was"


def _time_text(time_s: float) -> str:
    return f"{time_s * 1000:,.0f} ms" if time_s < 1 else f"{time_s:.1f} s"
