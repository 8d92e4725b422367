"""`bookie autorecovery` and `bookie replication …`: run auditor and worker, look at their work."""

import contextlib
import os
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import click

from bookie.admin.http import HttpOptions, WebhookOptions, http_options, webhook_options
from bookie.admin.ids import BOOKIE_ID
from bookie.admin.output import Output
from bookie.admin.serve import check_ports, log_to_stderr, setting_of
from bookie.admin.world import (
    SESSION_TIMEOUT_S,
    Cluster,
    Seconds,
    client_options,
    cluster_options,
    operations,
)
from bookie.autorecovery.operations import DELAY_S_MAX, ReplicationOperations
from bookie.autorecovery.service import AutoRecovery
from bookie.config import AutoRecoveryConfig, BookieConfig
from bookie.ledger.types import BookieId
from bookie.lifecycle.operations import Operations
from bookie.management.make import make_api
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_executors import run, stop_event
from bookie.runtime.os_input_files import kept
from bookie.runtime.os_log import LineWriter
from bookie.runtime.os_rng import OsRng
from bookie.server.health import HealthServer
from bookie.server.metrics import figure_families, log_figures

T = TypeVar("T")


@click.command()
@click.option(
    "--name",
    metavar="NAME",
    help="What votes, locks and statuses call it.  [default: host name and process id]",
)
@click.option(
    "--session-timeout",
    "session_timeout_s",
    type=Seconds(0.1, 600),
    default=SESSION_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Another auditor takes over after a silence of so long.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of AutoRecovery (docs/reference/bookie-config.md); may be repeated.",
)
@click.option(
    "--http-host", default="127.0.0.1", show_default=True, help="Where --http-port listens."
)
@client_options
@http_options
@webhook_options
def autorecovery(
    cluster: Cluster,
    output: Output,
    name: str | None,
    settings: tuple[str, ...],
    session_timeout_s: float,
    http_host: str,
    http: HttpOptions,
    webhooks: WebhookOptions | None,
) -> None:
    """Run an auditor and a replication worker, without a bookie, until SIGTERM or Ctrl-C.

    All auditors of a cluster elect one. The worker copies to bookies drawn by the placement policy;
    one beside a bookie (`bookie serve --autorecovery`) copies to that.
    """
    config = AutoRecoveryConfig(**dict(setting_of(text, AutoRecoveryConfig) for text in settings))  # type: ignore[arg-type]
    log = log_to_stderr()
    check_ports(http_host, {"--http-port": http.port}, "--http-host")
    name = name or f"{socket.gethostname()}:{os.getpid()}"
    run(_run(cluster, output, name, config, session_timeout_s, http_host, http, webhooks, log))


async def _run(
    cluster: Cluster,
    output: Output,
    name: str,
    config: AutoRecoveryConfig,
    session_timeout_s: float,
    http_host: str,
    http: HttpOptions,
    webhooks: WebhookOptions | None,
    log: LineWriter,
) -> None:
    told = stop_event()
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(
            kept(
                (cluster.tls, cluster.zookeeper_tls, http.tls),
                BookieConfig().tls_cert_files_refresh_duration_s,
            )
        )
        store = await stack.enter_async_context(cluster.session(session_timeout_s))
        hooks = None if webhooks is None else webhooks.make(store, cluster.root, config)
        service = await AutoRecovery.start(
            store, cluster.root, name, clock=OsClock(), rng=OsRng(), config=config, tls=cluster.tls,
            beside=None if hooks is None else hooks.run,
        )  # fmt: skip
        stack.push_async_callback(service.close)
        http_port = None
        if http.port is not None:
            api = None
            figures = [
                service.figures,
                partial(log_figures, log),
                *(() if hooks is None else (hooks.figures,)),
            ]
            if http.access is not None:
                api = make_api(http.access, operations(cluster, store), config, name)
                figures.append(api.figures)
            server = HealthServer(
                lambda: figure_families(one for source in figures for one in source()),
                lambda: None,
                lambda: None,
                api,
            )
            http_port = await server.start(http_host, http.port, http.tls)
            stack.push_async_callback(server.close)
        output.record(
            {"name": name, "http_port": http_port},
            f"AutoRecovery {name} is at work for {cluster.uri}",
        )
        await told.wait()


@click.group()
def replication() -> None:
    """Look at under-replicated ledgers, the auditor and its settings; switch AutoRecovery."""


def _do(cluster: Cluster, question: Callable[[ReplicationOperations], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        async with cluster.existing() as store:
            asked = Operations(store, cluster.root, OsRng(), OsClock())
            return await question(ReplicationOperations(store, cluster.root, asked))

    return run(main())


@replication.command("under-replicated")
@click.option(
    "--missing",
    type=BOOKIE_ID,
    metavar="BOOKIE",
    help="Only ledgers of which this bookie's is missing.",
)
@click.option(
    "--not-missing",
    type=BOOKIE_ID,
    metavar="BOOKIE",
    help="Only ledgers of which this one's is not.",
)
@cluster_options
def under_replicated(
    cluster: Cluster, output: Output, missing: BookieId | None, not_missing: BookieId | None
) -> None:
    """List the ledgers that wait for replication, and why those wait that could not be done."""
    records = _do(cluster, lambda asked: asked.under_replicated(missing, not_missing))
    columns = ("ledger_id", "missing", "is_locked", "failures", "is_loss", "reason")
    output.records(records, columns, "no ledger waits for replication")


@replication.command()
@cluster_options
def auditor(cluster: Cluster, output: Output) -> None:
    """Say which process is the auditor."""
    name = _do(cluster, lambda asked: asked.auditor())
    output.record({"auditor": name}, name or "there is no auditor: no AutoRecovery is running")


@replication.command()
@click.option(
    "--checks",
    "is_checking",
    is_flag=True,
    help="Let the periodic checks of ledgers, placement and entries be due now, too.",
)
@cluster_options
def audit(cluster: Cluster, output: Output, *, is_checking: bool) -> None:
    """Let the auditor look for ledgers of lost bookies now."""
    name = _do(cluster, lambda asked: asked.audit(is_checking=is_checking))
    output.record({"auditor": name}, f"{name} was told to look")


@replication.command()
@click.argument("seconds", type=click.IntRange(0, DELAY_S_MAX), required=False)
@cluster_options
def delay(cluster: Cluster, output: Output, seconds: int | None) -> None:
    """Show how long one lost bookie is waited for before its ledgers are copied; or set it."""

    async def ask(asked: ReplicationOperations) -> int:
        if seconds is not None:
            await asked.set_delay(seconds)
        return await asked.tasks.lost_bookie_delay_s()

    found = _do(cluster, ask)
    output.record({"delay_s": found}, f"one lost bookie is waited for {found} s")


@replication.command()
@cluster_options
def enable(cluster: Cluster, output: Output) -> None:
    """Let auditors publish and workers replicate again."""
    _do(cluster, lambda asked: asked.switch(is_on=True))
    output.record({"is_enabled": True}, "AutoRecovery is on")


@replication.command()
@cluster_options
def disable(cluster: Cluster, output: Output) -> None:
    """Stop publishing and replicating in the whole cluster, until `enable`."""
    _do(cluster, lambda asked: asked.switch(is_on=False))
    output.record({"is_enabled": False}, "AutoRecovery is off")


@replication.command()
@cluster_options
def status(cluster: Cluster, output: Output) -> None:
    """Say whether AutoRecovery is on, who audits, who copies, and how many ledgers wait.

    Workers are those that are registered: ours. Apache's register nowhere; one that copies a ledger
    now is among the other holders of locks, as recovery by hand is.
    """
    output.record(_do(cluster, lambda asked: asked.status()))
