"""Carries out ``stelae master copy``."""

from __future__ import annotations

import asyncio

from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.kit.terminal_layout import bytes_text
from stelae.cli.unreachable_node import StoppedMaster, read_stopped_master, unreachable_node
from stelae.cli.without_pandas import without_pandas
from stelae.client import AsyncClient, connect_async
from stelae.config.registry import Registry
from stelae.host.node import Node
from stelae.host.superblock import DataState
from stelae.lifecycle.config_rewrite import UNCHANGED
from stelae.machine.event_loop import new_event_loop
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import decode, encode
from stelae.protocol.member_messages import CONFIG, ConfigRequest, ConfigView
from stelae.server.tserver.stopped_node_copy import SystemTabletCopy, copy_order, still_leads
from stelae.spi.copy_plan import CopyProgress
from stelae.spi.errors import Unavailable
from stelae.spi.members import TabletConfig

LOOK_S = 0.02
"""How often the command looks how far the copy is, or asks masters again, in seconds."""


def run_copy(config_path: str, source: str, timeout_s: float, progress: bool | None, *, as_json: bool) -> int:
    """Copy the system tablet to a stopped master, and return the exit code."""
    without_pandas()
    registry = Registry.installed()
    master = read_stopped_master(config_path, registry)
    changed = master.superblock is None or master.superblock.data_state is not DataState.READY
    copied = CopyProgress(bytes_done=0, bytes_total=0, bytes_fetched=0, eta_ms=None)
    if changed:
        with asyncio.Runner(loop_factory=new_event_loop) as runner, StatusLine(progress) as line:
            copied = runner.run(_copy(master, registry, source, timeout_s, line))
        master = read_stopped_master(config_path, registry)
    directory = master.config.node.directory
    if master.consensus is None:
        raise Unavailable(f"{directory} has a system tablet without consensus metadata; its log says more if it starts")
    config = master.consensus.committed_config
    if as_json:
        own = {"directory": directory, "uuid": master.instance.node_id, "config_id": str(config.op_id)}
        members = [{"node_id": m.node_id, "address": m.address, "type": m.member_type.value} for m in config.members]
        sizes = {"bytes": copied.bytes_total, "bytes_fetched": copied.bytes_fetched}
        print_json({"changed": changed, **sizes, **own, "members": members})
        return EXIT_OK
    sizes_text = f"{bytes_text(copied.bytes_total)}, of which {bytes_text(copied.bytes_fetched)} were fetched now"
    print(f"copied {sizes_text}, to {directory}" if changed else f"nothing to do: {directory} has the catalog")
    note(_next_step(master, config))
    return EXIT_OK


def _next_step(master: StoppedMaster, config: TabletConfig) -> str:
    own = master.instance.node_id
    if config.member(own) is not None:
        return f"config {config.op_id} lists this master, so start it"
    fact = f"config {config.op_id} does not list this master {own}"
    return f"{fact}: start it, then let it join with: stelae master replace, or stelae master add"


async def _confirmed_view(client: AsyncClient, timeout_s: float) -> ConfigView:
    """Return the config as the leader knows it, once a majority has confirmed that it leads.

    Raises ``Unavailable`` if no leader answers, or no majority, in time."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    request = encode(ConfigRequest(SYSTEM_TABLET, leader_only=False))
    while True:
        view = await client.masters.config(timeout_s=timeout_s)
        voters = {*view.config.voters(), *view.committed.voters()}
        calls = (client.connection.ask(node, CONFIG, request) for node in voters)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        if still_leads(view, [decode(a.body[0], ConfigView) for a in answers if not isinstance(a, BaseException)]):
            return view
        if asyncio.get_running_loop().time() >= deadline:
            fact = f"{view.node_id} answers as the leading master, and no majority of the masters confirms it in time"
            raise Unavailable(f"{fact}; start the others. {UNCHANGED.capitalize()}")
        await asyncio.sleep(LOOK_S)


async def _copy(
    master: StoppedMaster, registry: Registry, source: str, timeout_s: float, line: StatusLine
) -> CopyProgress:
    """Copy, and return how much that was."""
    own, config = master.instance.node_id, master.config
    async with await connect_async(source, timeout_s=timeout_s) as client:
        view = await _confirmed_view(client, timeout_s)
    assert config.tablet is not None
    order = copy_order(view, own, config.consensus.name, config.tablet.table_name)
    made: list[SystemTabletCopy] = []

    def service(node: Node) -> SystemTabletCopy:
        made.append(SystemTabletCopy(node))
        return made[-1]

    async with unreachable_node(master, registry, [service]) as node:
        if (reason := node.failed_tablets.get(SYSTEM_TABLET)) is not None:
            raise Unavailable(f"what {config.node.directory} has of the system tablet: {reason}")
        (copy,) = made
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        copy.begin(order, ended.set_result)
        while not ended.done():
            await asyncio.wait([ended], timeout=LOOK_S)
            progress = copy.progress
            line.show(f"copy: {bytes_text(progress.bytes_done)} of {bytes_text(progress.bytes_total)}")
        if why := ended.result():
            raise Unavailable(f"the copy is not complete: {why}; repeat the command: it goes on with what has arrived")
        return copy.progress
