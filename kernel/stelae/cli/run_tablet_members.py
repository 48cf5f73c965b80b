"""Carries out ``stelae tablet config`` and the commands that change the replicas of a tablet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from stelae.cli.asked_copies import ask_copies
from stelae.cli.kit.connection import Target, connect_patiently
from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.name_lookup import UnknownName, nodes_at, pick, pick_node
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.member_text import NamedNode, changed_text, plain_view, print_view
from stelae.cli.member_types import OF_MEMBERS, OF_NEW_MEMBERS, member_type
from stelae.cli.move_progress import MoveProgress
from stelae.client import AsyncClient, AsyncReplicas, ChangeResult
from stelae.client.member_goals import lag_text
from stelae.local.cluster import LocalCluster, NotACluster
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.protocol.copy_list_messages import CopyLine
from stelae.protocol.master_messages import ServerLine
from stelae.protocol.member_messages import ConfigView
from stelae.spi.errors import CallerError, ConfigError, Unavailable
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import MemberType

LIST = "stelae tablet list"

_DIGITS_MAX = 18
"""Digits of a term or an index: more do not fit into a message."""


@dataclass(frozen=True, slots=True)
class TabletTarget:
    """The cluster and the tablet that the command line names."""

    directory: Path | None
    connect: str
    timeout_s: float
    tablet: str
    config_id: str = ""
    progress: bool | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[_OpenTablet]:
        """Connect to the cluster and find the tablet."""
        expected = parse_config_id(self.config_id)
        target = Target(directory=self.directory, connect=self.connect, tables=None, table="", timeout_s=self.timeout_s)
        async with await connect_patiently(target.addresses(), self.timeout_s, contacts=target.contacts()) as client:
            ids = await client.tablet_ids(timeout_s=self.timeout_s)
            tablet_id = pick("tablet", self.tablet, {one: one for one in ids}, LIST)
            replicas = await client.replicas(tablet_id, timeout_s=self.timeout_s)
            yield _OpenTablet(client, replicas, expected, self._local_names(), self.timeout_s)

    def _local_names(self) -> dict[str, str]:
        """Return node ids by the names of a local cluster, or nothing without ``--dir``."""
        if self.directory is None:
            return {}
        try:
            nodes = ClusterWithMasters.open(self.directory).servers
        except NotACluster:
            nodes = LocalCluster.open(self.directory).nodes
        return {node.name: node.node_id for node in nodes}


@dataclass(frozen=True, slots=True)
class _OpenTablet:
    """A tablet of a cluster that the command is connected to."""

    client: AsyncClient
    replicas: AsyncReplicas
    config_id: OpId | None
    local_names: dict[str, str]
    timeout_s: float

    async def member(self, given: str) -> NamedNode:
        """Return the node that the user names: a member, or any other node by its address or its whole uuid."""
        view = await self.replicas.config(timeout_s=self.timeout_s)
        addresses = {member.node_id: member.address for member in view.config.members}
        try:
            node = NodeId(pick_node("member", given, addresses, "stelae tablet config", self.local_names))
            return NamedNode(node, addresses.get(node, given))
        except UnknownName:
            if len(given) == len(view.node_id):
                return NamedNode(NodeId(given), "")  # It may have been removed already.
            if (former := await self._at(given)) is None:
                raise
            return NamedNode(former, given)

    async def _at(self, address: str) -> NodeId | None:
        """Return the node at an address that no member has, so that a removal by address can be repeated."""
        if ":" not in address:
            return None
        for line in await self._servers():
            if line.address == address:
                return line.node_id
        try:
            return await self.client.connection.reach(address)
        except (Unavailable, ConfigError):
            return None

    async def _servers(self) -> Sequence[ServerLine]:
        return () if self.client.catalog is None else (await self.client.catalog.list_servers()).servers

    async def server(self, given: str) -> tuple[str, NodeId | None]:
        """Return the address of the node that the user names, and its uuid if that is known.

        It is not if several servers have the address. The one that answers there is meant."""
        addresses = {line.node_id: line.address for line in await self._servers()}
        if ":" in given and given not in self.local_names and len(nodes_at(given, addresses)) != 1:
            return given, None
        node = NodeId(pick_node("tablet server", given, addresses, "stelae tserver list", self.local_names))
        if node in addresses:
            return addresses[node], node
        raise CallerError(f"the address of {given} is not known; write it as host:port")

    async def target(self, given: str) -> NamedNode:
        """Return the node that the user names for a replica, with its address."""
        address, known = await self.server(given)
        return NamedNode(known if known is not None else await self.replicas.node_at(address), address)

    async def type_of(self, node: NamedNode) -> MemberType:
        """Return the type of a node that is added without one: a member at a new address stays what it is."""
        view = await self.replicas.config(timeout_s=self.timeout_s)
        member = view.config.member(node.node_id)
        if member is None or member.address == node.name or member.member_type is MemberType.VOTER:
            return MemberType.PRE_VOTER
        return member.member_type

    def progress(self, line: StatusLine, target: NamedNode, source: NamedNode | None) -> MoveProgress:
        """Return what shows an addition on a node, or a move to it if there is a source."""

        async def look() -> CopyLine | None:
            answer = await ask_copies(self.client.connection, target.name, target.node_id)
            copies = () if answer is None else answer.copies
            return next((copy for copy in copies if copy.tablet_id == self.replicas.tablet_id), None)

        return MoveProgress(line, target, source, look)


def parse_config_id(text: str) -> OpId | None:
    """Return the op id that ``--config-id`` names; ``None`` without it. ``CallerError``: it is no op id."""
    if not text:
        return None
    term, dot, index = text.partition(".")
    if not (dot and _is_number(term) and _is_number(index)):
        raise CallerError(f"--config-id is {text[:80]!r}; write TERM.INDEX as in `stelae tablet config`, such as 3.17")
    return OpId(int(term), int(index))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX


def run_config(target: TabletTarget, *, as_json: bool) -> int:
    """Print the config of a tablet and return the exit code."""

    async def run() -> ConfigView:
        async with target.opened() as tablet:
            return await tablet.replicas.config(leader_only=False, timeout_s=target.timeout_s)

    view = asyncio.run(run())
    if as_json:
        print_json(plain_view(view))
    else:
        print_view(view)
    return EXIT_OK


def run_add(target: TabletTarget, node: str, type_name: str | None, *, wait_s: float | None, as_json: bool) -> int:
    """Add a replica and return the exit code. ``wait_s``: longest wait for its vote; ``None``: none."""
    wanted = None if type_name is None else member_type("--type", type_name, OF_NEW_MEMBERS)

    async def run(tablet: _OpenTablet, line: StatusLine) -> _Done:
        name = await tablet.target(node)
        async with tablet.progress(line, name, None) as progress:
            result = await tablet.replicas.add(
                name.name,
                node=name.node_id,
                member_type=wanted or await tablet.type_of(name),
                wait=wait_s is not None,
                config_id=tablet.config_id,
                on_progress=progress.see,
                timeout_s=target.timeout_s,
                wait_s=wait_s,
            )
            return name, result, await progress.document(result.view)

    return _changed(target, run, as_json=as_json)


def run_remove(target: TabletTarget, member: str, *, as_json: bool) -> int:
    """Remove a replica and return the exit code."""

    async def run(tablet: _OpenTablet, line: StatusLine) -> _Done:
        name = await tablet.member(member)
        result = await tablet.replicas.remove(
            name.node_id, config_id=tablet.config_id, on_progress=_shown(line, name), timeout_s=target.timeout_s
        )
        return name, result, {}

    return _changed(target, run, as_json=as_json)


def run_move(target: TabletTarget, member: str, node: str, *, wait_s: float, as_json: bool) -> int:
    """Move a replica and return the exit code. ``wait_s`` is the longest wait for its end."""

    async def run(tablet: _OpenTablet, line: StatusLine) -> _Done:
        source, name = await tablet.member(member), await tablet.target(node)
        async with tablet.progress(line, name, source) as progress:
            result = await tablet.replicas.move(
                source.node_id,
                name.name,
                to=name.node_id,
                config_id=tablet.config_id,
                on_progress=progress.see,
                timeout_s=target.timeout_s,
                wait_s=wait_s,
            )
            return name, result, await progress.document(result.view)

    return _changed(target, run, as_json=as_json)


def run_change_role(target: TabletTarget, member: str, type_name: str, *, wait_s: float | None, as_json: bool) -> int:
    """Change the type of a member and return the exit code."""
    wanted = member_type("TYPE", type_name, OF_MEMBERS)

    async def run(tablet: _OpenTablet, line: StatusLine) -> _Done:
        name = await tablet.member(member)
        result = await tablet.replicas.change_role(
            name.node_id,
            wanted,
            wait=wait_s is not None,
            config_id=tablet.config_id,
            on_progress=_shown(line, name),
            timeout_s=target.timeout_s,
            wait_s=wait_s,
        )
        return name, result, {}

    return _changed(target, run, as_json=as_json)


def run_transfer(target: TabletTarget, to: str, *, as_json: bool) -> int:
    """Hand over the leadership and return the exit code."""

    async def run(tablet: _OpenTablet, _line: StatusLine) -> _Done:
        name = (await tablet.member(to)).node_id if to else None
        result = await tablet.replicas.transfer(name, config_id=tablet.config_id, timeout_s=target.timeout_s)
        return NamedNode(result.view.node_id, ""), result, {}

    return _changed(target, run, as_json=as_json)


def run_abort(target: TabletTarget, *, as_json: bool) -> int:
    """Cancel a change and return the exit code. That no change is in progress is no error."""

    async def run() -> ChangeResult:
        async with target.opened() as tablet:
            return await tablet.replicas.abort_change(config_id=tablet.config_id, timeout_s=target.timeout_s)

    result = asyncio.run(run())
    if as_json:
        print_json({"changed": result.changed, **plain_view(result.view)})
    else:
        done = "the change was cancelled" if result.changed else "nothing to do: no change is in progress"
        note(f"{done}; the config is {result.view.committed.op_id}")
    return EXIT_OK


_Done: TypeAlias = tuple[NamedNode, ChangeResult, dict[str, Any]]
"""The node that a command was about, its result, and further fields for ``--json``."""

_Change: TypeAlias = Callable[[_OpenTablet, StatusLine], Awaitable[_Done]]


def _changed(target: TabletTarget, change: _Change, *, as_json: bool) -> int:
    """Make a change with progress on standard error, print its result, and return the exit code."""

    async def run() -> _Done:
        with StatusLine(target.progress) as line:
            async with target.opened() as tablet:
                return await change(tablet, line)

    node, result, more = asyncio.run(run())
    if as_json:
        print_json({"changed": result.changed, "node": node.node_id, **more, **plain_view(result.view)})
    else:
        note(changed_text(node, result))
        print_view(result.view)
    return EXIT_OK


def _shown(line: StatusLine, node: NamedNode) -> Callable[[ConfigView], None]:
    return lambda view: line.show(f"{node}: {lag_text(node.node_id, view)}")
