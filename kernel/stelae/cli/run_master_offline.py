"""Carries out ``stelae master rewrite`` and ``stelae master copy``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.kit.terminal_layout import bytes_text
from stelae.cli.member_text import plain_view, print_view
from stelae.cli.unreachable_node import StoppedMaster, read_stopped_master, unreachable_node
from stelae.cli.without_pandas import without_pandas
from stelae.client import connect_async
from stelae.config.registry import Registry
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.superblock import DataState
from stelae.lifecycle.config_rewrite import UNCHANGED, WantedMember, changes_to
from stelae.machine.event_loop import new_event_loop
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.member_messages import ConfigView
from stelae.server.tserver.member_service import config_view
from stelae.server.tserver.stopped_node_copy import SystemTabletCopy, copy_order
from stelae.spi.consensus import Role
from stelae.spi.errors import CallerError, MemberChangeRefused, StelaeError, Unavailable
from stelae.spi.ids import node_id
from stelae.spi.members import MemberChange, TabletConfig
from stelae.wire.addresses import split_address

LOOK_S = 0.02
"""How often a command looks how far its node is, in seconds."""


# -- rewrite ---------------------------------------------------------------------------------------


def run_rewrite(config_path: str, members: Sequence[str], timeout_s: float, *, as_json: bool) -> int:
    """Rewrite the config of a stopped master, which is the only voter, and return the exit code."""
    without_pandas()
    registry, wanted = Registry.installed(), [_wanted(text) for text in members]
    master = read_stopped_master(config_path, registry)
    if master.superblock is None or master.consensus is None or master.superblock.data_state is not DataState.READY:
        fact = f"{master.config.node.directory} has no system tablet, so there is no config to rewrite"
        raise MemberChangeRefused(f"{fact}; run this on the master that has the catalog. {UNCHANGED.capitalize()}")
    committed = master.consensus.committed_config
    changes_to(wanted, master.instance.node_id, committed, committed)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        changes, view = runner.run(_rewrite(master, registry, wanted, timeout_s))
    if as_json:
        print_json({"changed": bool(changes), "uuid": master.instance.node_id, **plain_view(view)})
        return EXIT_OK
    note(f"rewritten by {changes} changes; start this master" if changes else "nothing to do: the config is so already")
    print_view(view)
    return EXIT_OK


def _wanted(text: str) -> WantedMember:
    uuid, equals, address = text.partition("=")
    if not equals:
        raise CallerError(f"{text!r} is no member; write UUID=HOST:PORT. `stelae fs uuid` prints the uuid")
    split_address(address)
    return WantedMember(node_id(uuid), address)


async def _rewrite(
    master: StoppedMaster, registry: Registry, wanted: Sequence[WantedMember], timeout_s: float
) -> tuple[int, ConfigView]:
    """Make the changes. Return their number, and the config afterwards."""
    own = master.instance.node_id
    async with unreachable_node(master, registry) as node:
        replica = node.replicas.get(SYSTEM_TABLET)
        if replica is None:
            raise Unavailable(f"the system tablet does not start: {node.failed_tablets.get(SYSTEM_TABLET)}")
        # The newest config in the log is known only now. The node is out of reach, so nothing has happened yet.
        changes_to(wanted, own, replica.status.config, replica.status.committed_config)
        await _until_it_leads(replica, timeout_s)
        changes = changes_to(wanted, own, replica.status.config, replica.status.committed_config)
        for change in changes:
            await _made(replica, change, timeout_s)
        return len(changes), config_view(replica)


async def _until_it_leads(replica: Replica, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not (replica.status.role is Role.LEADER and replica.status.serving):
                if replica.failure:
                    raise Unavailable(f"the system tablet has failed: {replica.failure}")
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        fact = f"this master does not lead after {timeout_s:g} s, although it is the only voter"
        step = "start it, and see its log; if it has stood down for a recovery: stelae recover plan --masters"
        raise Unavailable(f"{fact}; {UNCHANGED}. Next, {step}") from None


async def _made(replica: Replica, change: MemberChange, timeout_s: float) -> None:
    """Make one change, and wait until it is committed."""
    result: asyncio.Future[TabletConfig | StelaeError] = asyncio.get_running_loop().create_future()
    replica.change_members(change, result.set_result, committed_config_id=replica.status.committed_config.op_id)
    try:
        found = await asyncio.wait_for(result, timeout_s)
    except TimeoutError:
        raise Unavailable("a change of the config is not committed in time; repeat the command") from None
    if isinstance(found, StelaeError):
        raise found


# -- copy ------------------------------------------------------------------------------------------


def run_copy(config_path: str, source: str, timeout_s: float, progress: bool | None, *, as_json: bool) -> int:
    """Copy the system tablet to a stopped master, and return the exit code."""
    without_pandas()
    registry = Registry.installed()
    master = read_stopped_master(config_path, registry)
    changed = master.superblock is None or master.superblock.data_state is not DataState.READY
    copied = 0
    if changed:
        with asyncio.Runner(loop_factory=new_event_loop) as runner, StatusLine(progress) as line:
            copied = runner.run(_copy(master, registry, source, timeout_s, line))
        master = read_stopped_master(config_path, registry)
    assert master.consensus is not None
    config, directory = master.consensus.committed_config, master.config.node.directory
    if as_json:
        own = {"directory": directory, "uuid": master.instance.node_id, "config_id": str(config.op_id)}
        members = [{"node_id": m.node_id, "address": m.address, "type": m.member_type.value} for m in config.members]
        print_json({"changed": changed, "bytes": copied, **own, "members": members})
        return EXIT_OK
    print(f"copied {bytes_text(copied)} to {directory}" if changed else f"nothing to do: {directory} has the catalog")
    note(_next_step(master, config))
    return EXIT_OK


def _next_step(master: StoppedMaster, config: TabletConfig) -> str:
    own = master.instance.node_id
    if config.member(own) is not None:
        return f"config {config.op_id} lists this master, so start it"
    fact = f"config {config.op_id} does not list this master {own}"
    return f"{fact}: start it, then let it join with: stelae master replace, or stelae master add"


async def _copy(master: StoppedMaster, registry: Registry, source: str, timeout_s: float, line: StatusLine) -> int:
    """Copy, and return the bytes that the copy has."""
    own, config = master.instance.node_id, master.config
    async with await connect_async(source, timeout_s=timeout_s) as client:
        view = await client.masters.config(timeout_s=timeout_s)
    assert config.tablet is not None
    order = copy_order(view, own, config.consensus.name, config.tablet.table_name)
    made: list[SystemTabletCopy] = []

    def service(node: Node) -> SystemTabletCopy:
        made.append(SystemTabletCopy(node))
        return made[-1]

    async with unreachable_node(master, registry, [service]) as node:
        if (reason := node.failed_tablets.get(SYSTEM_TABLET)) is not None:
            raise Unavailable(f"what {DirectoryLayout(config.node.directory).root} has of the system tablet: {reason}")
        (copy,) = made
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        copy.begin(order, ended.set_result)
        while not ended.done():
            await asyncio.wait([ended], timeout=LOOK_S)
            done, total = copy.progress
            line.show(f"copy: {bytes_text(done)} of {bytes_text(total)}")
        if why := ended.result():
            raise Unavailable(f"the copy is not complete: {why}; repeat the command: it goes on with what has arrived")
        return copy.progress[1]
