"""`herdpy node`: one node of a cluster, until SIGTERM or Ctrl-C."""

import asyncio
import logging
import signal
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from bookie.runtime.os_executors import run, stop_event
from bookie.runtime.os_log import LineWriter
from herdpy.cli.logs import set_up_logs
from herdpy.cli.serve import frequent_switches, rare_collections
from herdpy.cli.settings import Loaded
from herdpy.cli.system import make_room, notify
from herdpy.errors import Error
from herdpy.node.hosted import HostedNode
from herdpy.node.node import Node
from herdpy.node.place import ClusterPlace

_log = logging.getLogger(__name__)


def run_node(
    place: ClusterPlace,
    data: Path,
    node_id: str | None,
    load: Callable[[], Loaded],
    *,
    console: Console,
) -> None:
    """Be a node until a signal; herdpy.Error when that cannot begin, or must not go on.

    load: gives the settings, and again at SIGHUP.
    """
    loaded = load()
    config = loaded.server
    node = Node(
        data,
        place=place,
        id=node_id,
        server=config,
        database=loaded.database,
        settings=loaded.node,
    )
    log = set_up_logs(config.log_level, config.log_format)
    if config.log_level != "debug":  # it tells of each try to connect
        logging.getLogger("bookie.kazoo").setLevel(logging.ERROR)
    make_room(config)
    with rare_collections(), frequent_switches(config.switch_interval_us / 1e6):
        run(_live(node, log, load, console))


async def _live(node: Node, log: LineWriter, load: Callable[[], Loaded], console: Console) -> None:
    loop = asyncio.get_running_loop()
    stop = stop_event()
    hosted = HostedNode(node, [log])
    loop.add_signal_handler(signal.SIGHUP, _reload, hosted, load)
    starting, stopping = loop.create_task(hosted.start()), loop.create_task(stop.wait())
    ending = loop.create_task(hosted.wait())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            where = f"{node.zookeeper}{node.root}"
            console.print(f"node {hosted.id} of {where}, for clients at {node.address}")
            console.print("stop with Ctrl-C", style="dim")
            notify("READY=1", f"STATUS=node {hosted.id} of {where}")
            await asyncio.wait([ending, stopping], return_when=asyncio.FIRST_COMPLETED)
        notify("STOPPING=1", "STATUS=open transactions have time to end")
    finally:
        await hosted.close()
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)
        await asyncio.gather(ending, return_exceptions=True)
    await ending  # raises why it has ended by itself


def _reload(hosted: HostedNode, load: Callable[[], Loaded]) -> None:
    """Take up settings, certificates, and a new audit log when the old one was renamed."""
    hosted.reopen_audit()
    try:
        config = load().server
        left = hosted.reload(config)
    except Error as error:
        _log.error("reload: settings and certificates stay as they were: %s", error)
        return
    logging.getLogger().setLevel(config.log_level.upper())
    if left:
        _log.warning("reload: these count from the next start on: %s", ", ".join(left))
    _log.info("reloaded")
