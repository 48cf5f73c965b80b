"""Carries out ``stelae master rewrite``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.member_text import plain_view, print_view
from stelae.cli.unreachable_node import StoppedMaster, read_stopped_master, unreachable_node
from stelae.cli.without_pandas import without_pandas
from stelae.client.counted import counted
from stelae.config.registry import Registry
from stelae.host.replica import Replica
from stelae.host.superblock import DataState
from stelae.lifecycle.config_rewrite import UNCHANGED, WantedMember, changes_to
from stelae.machine.event_loop import new_event_loop
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.member_messages import ConfigView
from stelae.server.tserver.member_service import config_view
from stelae.spi.consensus import Role
from stelae.spi.errors import CallerError, MemberChangeRefused, StelaeError, Unavailable
from stelae.spi.ids import node_id
from stelae.spi.members import MemberChange, TabletConfig
from stelae.wire.addresses import split_address

LOOK_S = 0.02
"""How often the command looks whether its node leads, in seconds."""


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
    note(
        f"rewritten by {counted(changes, 'change')}; start this master"
        if changes
        else "nothing to do: the config is so already"
    )
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
