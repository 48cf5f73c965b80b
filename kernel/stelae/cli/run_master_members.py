"""Carries out the commands that change the masters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.name_lookup import UnknownName, nodes_at, pick_node
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.masters_target import MastersTarget
from stelae.cli.member_text import NamedNode, changed_text, plain_view, print_view
from stelae.cli.run_tablet_members import parse_config_id
from stelae.client import AsyncMasters, ChangeResult
from stelae.client.masters import REACH_S
from stelae.client.member_goals import lag_text
from stelae.protocol.member_messages import ConfigView
from stelae.spi.errors import ConfigError, Unavailable
from stelae.spi.ids import NodeId, OpId

LIST = "stelae master list"


@dataclass(frozen=True, slots=True)
class ChangeTarget:
    """The masters that the command line names, and the options of a change."""

    directory: Path | None
    connect: str
    timeout_s: float
    config_id: str = ""
    progress: bool | None = None


@dataclass(frozen=True, slots=True)
class _OpenMasters:
    masters: AsyncMasters
    reach: Callable[[str], Awaitable[NodeId]]
    config_id: OpId | None
    local_names: dict[str, str]
    timeout_s: float

    async def named(self, given: str, *, not_the_one_at: str = "") -> NamedNode:
        """Return the master that the user names: a present one, or any other node by its address or its whole uuid.

        Of two members with one address it is not the node that answers there, if that is the address of
        ``not_the_one_at``: a replacement that was cut short goes on with the lost one. Otherwise they are refused."""
        view = await self.masters.config(timeout_s=self.timeout_s)
        addresses = {member.node_id: member.address for member in view.config.members}
        if given == not_the_one_at and len(nodes_at(given, addresses)) > 1:
            addresses.pop(await self.masters.node_at(given, timeout_s=min(self.timeout_s, REACH_S)), None)
        known = {name: node for name, node in self.local_names.items() if node in addresses}
        try:
            node = NodeId(pick_node("master", given, addresses, LIST, known))
            return NamedNode(node, addresses.get(node, given))
        except UnknownName:
            if given in self.local_names:
                return NamedNode(NodeId(self.local_names[given]), given)
            if len(given) == len(view.node_id):
                return NamedNode(NodeId(given), "")  # It may have been removed already.
            if ":" not in given:
                raise
            try:
                return NamedNode(await self.reach(given), given)
            except (Unavailable, ConfigError):
                pass
            raise


_Change = Callable[[_OpenMasters, StatusLine], Awaitable[tuple[NamedNode, ChangeResult]]]


def run_add(target: ChangeTarget, address: str, *, wait: bool, as_json: bool) -> int:
    """Add a master and return the exit code."""

    async def run(opened: _OpenMasters, line: StatusLine) -> tuple[NamedNode, ChangeResult]:
        name = await opened.masters.node_at(address, timeout_s=min(target.timeout_s, REACH_S))
        result = await opened.masters.add(
            address,
            node=name,
            wait=wait,
            config_id=opened.config_id,
            on_progress=_shown(line, NamedNode(name, address)),
            timeout_s=target.timeout_s,
        )
        return NamedNode(name, address), result

    return _changed(target, run, as_json=as_json)


def run_remove(target: ChangeTarget, master: str, *, as_json: bool) -> int:
    """Remove a master and return the exit code."""

    async def run(opened: _OpenMasters, line: StatusLine) -> tuple[NamedNode, ChangeResult]:
        name = await opened.named(master)
        return name, await opened.masters.remove(
            name.node_id, config_id=opened.config_id, on_progress=_shown(line, name), timeout_s=target.timeout_s
        )

    return _changed(target, run, as_json=as_json)


def run_replace(target: ChangeTarget, master: str, address: str, *, as_json: bool) -> int:
    """Replace a master and return the exit code."""

    async def run(opened: _OpenMasters, line: StatusLine) -> tuple[NamedNode, ChangeResult]:
        source = await opened.named(master, not_the_one_at=address)
        name = await opened.masters.node_at(address, timeout_s=min(target.timeout_s, REACH_S))
        result = await opened.masters.replace(
            source.node_id,
            address,
            to=name,
            on_progress=_shown(line, NamedNode(name, address)),
            timeout_s=target.timeout_s,
        )
        return NamedNode(name, address), result

    return _changed(target, run, as_json=as_json)


def run_transfer(target: ChangeTarget, to: str, *, as_json: bool) -> int:
    """Hand over the leadership and return the exit code."""

    async def run(opened: _OpenMasters, _line: StatusLine) -> tuple[NamedNode, ChangeResult]:
        name = (await opened.named(to)).node_id if to else None
        result = await opened.masters.transfer(name, config_id=opened.config_id, timeout_s=target.timeout_s)
        return NamedNode(result.view.node_id, ""), result

    return _changed(target, run, as_json=as_json)


def _changed(target: ChangeTarget, change: _Change, *, as_json: bool) -> int:
    """Make a change with progress on standard error, print its result, and return the exit code."""
    config_id = parse_config_id(target.config_id)
    cluster = MastersTarget(target.directory, target.connect, target.timeout_s)

    async def run() -> tuple[NamedNode, ChangeResult]:
        with StatusLine(target.progress) as line:
            async with cluster.masters() as (client, _catalog):
                reach = client.connection.reach
                opened = _OpenMasters(client.masters, reach, config_id, cluster.names(), target.timeout_s)
                return await change(opened, line)

    node, result = asyncio.run(run())
    if as_json:
        print_json({"changed": result.changed, "node": node.node_id, **plain_view(result.view)})
        return EXIT_OK
    note(changed_text(node, result))
    count = len(result.view.config.voters())
    if count % 2 == 0:
        note(f"{count} masters tolerate no more failures than {count - 1}: add one more, or remove one")
    print_view(result.view)
    return EXIT_OK


def _shown(line: StatusLine, node: NamedNode) -> Callable[[ConfigView], None]:
    return lambda view: line.show(f"{node}: {lag_text(node.node_id, view)}")
