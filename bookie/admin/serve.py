"""`bookie serve`: one bookie in this process, until it is told to stop.

What it works on is built by bookie/hosting.py; here are its options, and the session.
"""

import contextlib
import logging
import socket
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click

from bookie.admin.directories import absolute_ledgers, directory_options
from bookie.admin.http import HttpOptions, WebhookOptions, http_options, webhook_options
from bookie.admin.output import Output
from bookie.admin.world import (
    SESSION_TIMEOUT_S,
    Cluster,
    Seconds,
    client_contexts,
    cluster_options,
    operations,
)
from bookie.autorecovery.service import AutoRecovery
from bookie.config import AutoRecoveryConfig, BookieConfig
from bookie.errors import BookieStartError
from bookie.hosting import (
    check_openness,
    directories_of,
    hosted_bookie,
    registration_timeout_of,
)
from bookie.management.access import HttpAccess
from bookie.management.make import make_api
from bookie.metadata.kazoo_client import KAZOO_LOGGER
from bookie.runtime.http import Api
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_executors import run, run_until_stopped
from bookie.runtime.os_input_files import Reread, kept
from bookie.runtime.os_log import LineWriter, LogLines
from bookie.runtime.os_rng import OsRng
from bookie.runtime.os_tls.files import TlsContexts
from bookie.server.identity import BookieDirectories
from bookie.server.metrics import log_figures
from bookie.server.node import BookieNode
from bookie.server.tls import access_of, server_contexts, warn_of_own_rights
from bookie.server.wire.client_access import ClientAccess

_STANDARD_ERROR = 2
_TO_BE_SECURED = (
    "expected TLS to be required: --tls CERTIFICATE KEY and "
    "--tls-trust FILE (clients show a certificate), or --tls and --set "
    "is_tls_required=true. In a network that keeps others out: --allow-clear"
)
_FLAGS = {
    "host", "port", "advertised_address", "bookie_id", "http_port", "ledgers_root",
    "journal_directory", "ledger_directories", "scrub_interval_s", "scrub_bytes_per_s",
}  # fmt: skip
"""Settings that have an option of their own."""


def setting_of(
    text: str, config: type[BookieConfig | AutoRecoveryConfig], option: str = "--set"
) -> tuple[str, object]:
    """Read NAME=VALUE of an option; BadParameter says which names there are."""
    name, equals, value = text.partition("=")
    types_of = get_type_hints(config)
    names = sorted(item.name for item in fields(config) if item.name not in _FLAGS)
    if not equals or name not in names:
        raise click.BadParameter(
            f"expected NAME=VALUE, found {text!r}; names are {', '.join(names)}",
            param_hint=option,
        )
    kind: type[Any] = types_of[name]
    if isinstance(kind, types.UnionType):
        kind = get_args(kind)[0]
    try:
        if kind is bool:
            return name, {"true": True, "false": False}[value.lower()]
        return name, kind(value)
    except (ValueError, KeyError):
        raise click.BadParameter(
            f"{name}: expected {kind.__name__}, found {value!r}", param_hint=option
        ) from None


def settings_of(texts: Sequence[str], session_timeout_s: float) -> dict[str, object]:
    """Return the values of --set by name, and a registration_timeout_s that fits the session."""
    chosen = dict(setting_of(text, BookieConfig) for text in texts)
    chosen.setdefault("registration_timeout_s", registration_timeout_of(session_timeout_s))
    return chosen


def check_ports(host: str, ports: Mapping[str, int | None], host_option: str = "--host") -> None:
    """Refuse what cannot be listened on before anything is begun; BookieStartError.

    ports: by the options that say them; host_option: that says the host.
    """
    for option, port in ports.items():
        if not port:
            continue
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            with socket.socket(family, kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise BookieStartError(
                f"bookie cannot listen on {host}:{port}: {error.strerror or error}; "
                f"expected an address of this machine and a free port ({option}, {host_option})"
            ) from error


def log_to_stderr() -> LineWriter:
    """Log what operators want to know, from INFO on; nothing waits for who reads it.

    Return what writes it.
    """
    handler = LogLines(_STANDARD_ERROR)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)-5s %(name)s: %(message)s",
        handlers=[handler],
    )
    # It tells of each try to reconnect; that the connection is lost the registration tells.
    logging.getLogger(KAZOO_LOGGER).setLevel(logging.ERROR)
    return handler.lines


@click.command()
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("bookie-data"),
    show_default=True,
    help="The bookie's directory, made if missing: the index, and what has no other place.",
)
@directory_options
@click.option(
    "--lost-ledgers",
    "lost",
    type=click.Path(file_okay=False, path_type=Path),
    multiple=True,
    metavar="DIRECTORY",
    help="A directory of --ledgers that is gone for good, its contents lost: start without it, or "
    "with a new and empty one in its place. Reads of what may have been there fail from then on, "
    "and deny nothing. May be repeated.",
)
@click.option(
    "--expand",
    "is_expansion_allowed",
    is_flag=True,
    help="Directories of --ledgers that this bookie has not had before are new, and empty.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=3181,
    show_default=True,
    help="Where clients connect; 0: any free port.",
)
@click.option(
    "--advertised-address",
    metavar="HOST",
    help="The host name that clients connect to.  [default: host]",
)
@click.option(
    "--bookie-id",
    metavar="ID",
    help="The name that ledgers know it by, for good.  [default: advertised address and port]",
)
@click.option(
    "--session-timeout",
    "session_timeout_s",
    type=Seconds(0.1, 600),
    default=SESSION_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="ZooKeeper deregisters a bookie that has been silent for so long.",
)
@click.option("--read-only", "is_read_only", is_flag=True, help="Take no writes.")
@click.option(
    "--tls",
    nargs=2,
    type=click.Path(exists=True, dir_okay=False),
    metavar="CERTIFICATE KEY",
    help="PEM files: serve clients that ask for TLS (START_TLS) with them.",
)
@click.option(
    "--tls-trust",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="PEM file: serve only clients that ask for TLS and show a certificate signed by these. "
    "Needs --tls.",
)
@click.option(
    "--tls-access",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Which names of certificates give which rights: lines `read|write KIND NAME`, KIND one of "
    "role, cn, ou, dns, uri, email. Other certificates give none. Needs --tls-trust.",
)
@click.option(
    "--authorized-roles",
    metavar="ROLES",
    help="BookKeeper's authorizedRoles, with commas between: clients whose certificate has one of "
    "them first (OU=0:ROLE) may read and write, as by lines `write role ROLE` of --tls-access.",
)
@click.option(
    "--allow-clear",
    "is_clear_allowed",
    is_flag=True,
    help="Listen where other machines reach it, and serve those, too, that do not ask for TLS.",
)
@click.option(
    "--scrub-interval",
    "scrub_interval_s",
    type=Seconds(0, 365 * 86400),
    default=BookieConfig().scrub_interval_s,
    show_default=True,
    metavar="SECONDS",
    help="Read and verify all entries about this often, and copy from other bookies what is "
    "damaged; 0: only when it is asked for.",
)
@click.option(
    "--scrub-rate",
    "scrub_bytes_per_s",
    type=click.IntRange(1 << 10, 1 << 40),
    default=BookieConfig().scrub_bytes_per_s,
    show_default=True,
    metavar="BYTES",
    help="For that entry logs are read at most so fast, in bytes per second.",
)
@click.option(
    "--autorecovery",
    "is_recovering",
    is_flag=True,
    help="Also stand for election as the auditor, and copy to this bookie what others lost.",
)
@click.option(
    "--set-autorecovery",
    "recovery_settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of AutoRecovery; may be repeated. Needs --autorecovery.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of docs/reference/bookie-config.md; may be repeated.",
)
@cluster_options
@http_options
@webhook_options
def serve(
    cluster: Cluster,
    output: Output,
    data: Path,
    host: str,
    port: int,
    advertised_address: str | None,
    bookie_id: str | None,
    http: HttpOptions,
    webhooks: WebhookOptions | None,
    settings: tuple[str, ...],
    tls: tuple[str, str] | None,
    tls_trust: str | None,
    tls_access: str | None,
    authorized_roles: str | None,
    session_timeout_s: float,
    scrub_interval_s: float,
    scrub_bytes_per_s: int,
    recovery_settings: tuple[str, ...],
    journal: Path | None,
    ledgers: tuple[str, ...],
    lost: tuple[Path, ...],
    *,
    is_read_only: bool,
    is_recovering: bool,
    is_expansion_allowed: bool,
    is_clear_allowed: bool,
) -> None:
    """Run one bookie until SIGTERM or Ctrl-C.

    Prints one line when it is registered, and logs to standard error. Refuses to start on a
    directory of another bookie or another cluster, and on one that was wiped.
    """
    if tls_trust is not None and tls is None:
        raise click.UsageError("--tls-trust: expected --tls CERTIFICATE KEY with it, found none")
    if (tls_access is not None or authorized_roles is not None) and tls_trust is None:
        raise click.UsageError(
            "--tls-access, --authorized-roles: expected --tls-trust FILE with them, found none: "
            "without it clients show no certificate"
        )
    recovery = _recovery_config(recovery_settings, is_recovering=is_recovering)
    if webhooks is not None and recovery is None:
        raise click.UsageError("--webhook: expected --autorecovery with it, found none")
    chosen = settings_of(settings, session_timeout_s)
    config = BookieConfig(
        host=host,
        port=port,
        advertised_address=advertised_address,
        bookie_id=bookie_id,
        http_port=http.port,
        ledgers_root=cluster.root,
        journal_directory=None if journal is None else str(journal.resolve()),
        ledger_directories=absolute_ledgers(ledgers),
        scrub_interval_s=scrub_interval_s,
        scrub_bytes_per_s=scrub_bytes_per_s,
        **chosen,  # type: ignore[arg-type]
    )
    if not (config.is_tls_required or tls_trust is not None or is_clear_allowed):
        check_openness(host, f"--host {host}", _TO_BE_SECURED)
    log = log_to_stderr()
    contexts = None if tls is None else server_contexts(*tls, tls_trust, OsClock())
    access = access_of(tls_access, authorized_roles)
    if access is not None and tls is not None:
        warn_of_own_rights(access(), tls[0])
    places = directories_of(data.resolve(), config, lost, is_expansion_allowed=is_expansion_allowed)
    check_ports(host, {"--port": port, "--http-port": http.port})
    # Its worker and auditor are clients of the other bookies, which ask as this one does.
    cluster = replace(cluster, tls=None if tls_trust is None else client_contexts(tls_trust, tls))
    run(
        _serve(
            cluster,
            output,
            places,
            config,
            contexts,
            access,
            session_timeout_s,
            recovery,
            is_read_only=is_read_only,
            http=http,
            webhooks=webhooks,
            log=log,
        )
    )


def _recovery_config(texts: Sequence[str], *, is_recovering: bool) -> AutoRecoveryConfig | None:
    if not is_recovering:
        if texts:
            raise click.UsageError("--set-autorecovery: expected --autorecovery with it")
        return None
    chosen = dict(setting_of(text, AutoRecoveryConfig, "--set-autorecovery") for text in texts)
    return AutoRecoveryConfig(**chosen)  # type: ignore[arg-type]


async def _serve(
    cluster: Cluster,
    output: Output,
    places: BookieDirectories,
    config: BookieConfig,
    tls: TlsContexts | None,
    access: Reread[ClientAccess] | None,
    session_timeout_s: float,
    recovery: AutoRecoveryConfig | None,
    *,
    is_read_only: bool,
    http: HttpOptions,
    webhooks: WebhookOptions | None,
    log: LineWriter,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        files = (tls, access, cluster.tls, cluster.zookeeper_tls, http.tls)
        await stack.enter_async_context(kept(files, config.tls_cert_files_refresh_duration_s))
        store = await stack.enter_async_context(cluster.session(session_timeout_s))

        def api(access: HttpAccess, node: BookieNode) -> Api:
            asked = operations(cluster, store)
            made = make_api(access, asked, config, f"bookie {node.bookie_id}", node)
            node.metrics.add_source(made.figures)
            return made

        node = await stack.enter_async_context(
            hosted_bookie(
                store,
                places,
                config,
                tls=tls,
                access=access,
                client_tls=cluster.tls,
                is_read_only=is_read_only,
                api=None if http.access is None else partial(api, http.access),
                http_tls=http.tls,
            )
        )
        node.metrics.add_source(partial(log_figures, log))
        if recovery is not None:
            hooks = None if webhooks is None else webhooks.make(store, cluster.root, recovery)
            if hooks is not None:
                node.metrics.add_source(hooks.figures)
            service = await AutoRecovery.start(
                store,
                cluster.root,
                node.bookie_id,
                clock=OsClock(),
                rng=OsRng(),
                config=recovery,
                tls=cluster.tls,
                local=node.bookie_id,
                beside=None if hooks is None else hooks.run,
            )
            stack.push_async_callback(service.close)
            node.metrics.add_source(service.figures)
        output.record(
            {"bookie_id": node.bookie_id, "port": node.port, "http_port": node.http_port,
             "data": places.data_name},
            f"bookie {node.bookie_id} serves {cluster.uri} from {places.data_name}",
        )  # fmt: skip
        await run_until_stopped(node.wait())
