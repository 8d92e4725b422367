"""--http-port, --webhook and what belongs to them, of the commands that serve."""

import functools
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from bookie.admin.world import client_context
from bookie.autorecovery.tasks import TaskStore
from bookie.config import AutoRecoveryConfig
from bookie.errors import BookieStartError
from bookie.lifecycle.operations import Operations
from bookie.management.access import HttpAccess
from bookie.management.http_client import Url
from bookie.management.webhooks import Webhooks
from bookie.metadata.interfaces import VersionedStore
from bookie.runtime.os_clock import OsClock
from bookie.runtime.os_input_files import read_secret
from bookie.runtime.os_rng import OsRng
from bookie.runtime.os_tls.files import TlsContexts
from bookie.server.tls import server_context


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What a process serves over HTTP."""

    port: int | None
    """None: nothing."""
    access: HttpAccess | None
    """None: no management API."""
    tls: TlsContexts | None


def http_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options; it gets `http`. UsageError, BookieStartError."""

    @click.option(
        "--http-port",
        type=click.IntRange(0, 65535),
        help="Serve /metrics, /heartbeat, /health and /ready here.  [default: nowhere]",
    )
    @click.option(
        "--http-access",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Also serve the management API, to those whom this file gives a role: lines "
        "`read|admin token TOKEN` and `read|admin certificate NAME`. Needs --http-port.",
    )
    @click.option(
        "--http-tls",
        nargs=2,
        type=click.Path(exists=True, dir_okay=False),
        metavar="CERTIFICATE KEY",
        help="PEM files: serve HTTP by TLS with them. Needs --http-port.",
    )
    @click.option(
        "--http-tls-trust",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="PEM file: over HTTP, certificates of clients that are signed by these count, and "
        "others are refused; probes need none. Needs --http-tls.",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        http_port: int | None,
        http_access: Path | None,
        http_tls: tuple[str, str] | None,
        http_tls_trust: str | None,
        **options: Any,
    ) -> None:
        if http_tls_trust is not None and http_tls is None:
            raise click.UsageError("--http-tls-trust: expected --http-tls CERTIFICATE KEY with it")
        if http_port is None and (http_access is not None or http_tls is not None):
            raise click.UsageError("--http-access and --http-tls: expected --http-port with them")
        access = (
            None
            if http_access is None
            else _access(http_access, has_trust=http_tls_trust is not None)
        )
        tls = None if http_tls is None else http_contexts(http_tls, http_tls_trust)
        command(*arguments, http=HttpOptions(http_port, access, tls), **options)

    return wrapped


def http_context(tls: tuple[str, str], trust_path: str | None) -> ssl.SSLContext:
    """Return what HTTP is served with. A client without a certificate has no role by it.

    It is let in all the same: probes and scrapers are, as without TLS. BookieStartError.
    """
    context = server_context(*tls, trust_path)
    if trust_path is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def http_contexts(tls: tuple[str, str], trust_path: str | None) -> TlsContexts:
    """Return http_context() of these files, and of those that replace them. BookieStartError."""
    make = functools.partial(http_context, tls, trust_path)
    return TlsContexts("TLS of HTTP", make, OsClock(), *tls, trust_path)


def _access(path: Path, *, has_trust: bool) -> HttpAccess | None:
    try:
        text = read_secret("--http-access", path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BookieStartError(
            f"--http-access {path}: expected text in UTF-8, found another byte at {error.start}; "
            "mend the file"
        ) from error
    access = HttpAccess(text, str(path))
    if access.has_certificates and not has_trust:
        raise BookieStartError(
            f"--http-access {path}: it gives roles to certificates, which are verified only with "
            "--http-tls and --http-tls-trust; expected both, found no --http-tls-trust"
        )
    return None if access.is_empty else access


@dataclass(frozen=True, slots=True)
class WebhookOptions:
    """Which receivers are told of changes of the lifecycle."""

    urls: tuple[Url, ...]
    secret: bytes
    tls: ssl.SSLContext

    def make(self, store: VersionedStore, root: str, config: AutoRecoveryConfig) -> Webhooks:
        """Return what the auditor does beside its work."""
        clock = OsClock()
        return Webhooks(
            self.urls, self.secret, self.tls, Operations(store, root, OsRng(), clock),
            TaskStore(store, root), clock, config.poll_interval_s,
        )  # fmt: skip


def webhook_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options; it gets `webhooks`, None without any. UsageError."""

    @click.option(
        "--webhook",
        "urls",
        envvar="BOOKIE_WEBHOOKS",
        show_envvar=True,
        multiple=True,
        metavar="URL",
        help="While this process is the auditor, POST each change of a bookie's lifecycle there. "
        "May be repeated; with blanks between in the environment, which hides it from lists of "
        "processes. Needs --webhook-secret.",
    )
    @click.option(
        "--webhook-secret",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="What signs them (HMAC-SHA256): the file's content without blanks around it.",
    )
    @click.option(
        "--webhook-trust",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="PEM file: receivers' certificates are signed by these.  [default: the system's]",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        urls: tuple[str, ...],
        webhook_secret: Path | None,
        webhook_trust: str | None,
        **options: Any,
    ) -> None:
        if bool(urls) != (webhook_secret is not None):
            raise click.UsageError("--webhook and --webhook-secret: expected both, found one")
        webhooks = None
        if webhook_secret is not None:
            trust = client_context(webhook_trust, None, "--webhook-trust")
            secret = read_secret("--webhook-secret", webhook_secret).strip()
            webhooks = WebhookOptions(
                tuple(map(Url.of, urls)), secret, trust or ssl.create_default_context()
            )
        command(*arguments, webhooks=webhooks, **options)

    return wrapped
