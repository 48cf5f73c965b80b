"""The nodes that a nemesis breaks, and how it breaks and heals them.

Nodes are killed and suspended by process id, so it does not matter which process has started them. Networks, disks and
clocks are broken by the files of rules that the section ``[chaos]`` of a ``node.toml`` names
(``stelae.local.chaos``). A target knows what it has broken, and :meth:`FaultTarget.heal` undoes all of it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from stelae.client.catalog import find_catalog
from stelae.client.connection import Connection
from stelae.local.chaos.node_rules import RulesKind, rules_paths, set_rules
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo_verification import wait_for_health
from stelae.local.node_process import NodeProcess, NodeRuns
from stelae.local.replica_status import leaders
from stelae.protocol.catalog_names import SYSTEM_TABLET, ServerMode
from stelae.protocol.master_messages import SetServerMode
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, TabletId
from stelae_chaos.replacements import Members, is_being_replaced, members_of_tablets, unreplaced

KILL_TIMEOUT_S = 30.0
WHOLE_TIMEOUT_S = 20.0
"""How long a disk that is to be lost waits for a whole cluster. Two of three replicas lost at once are a majority."""

LONG_TIMEOUT_S = 20.0
"""How long a killed server waits for the masters to begin to replace its replicas. They may not do it at all: while a
majority of a tablet is down, they remove no member."""

LOOK_S = 0.2

POLL_S = 0.01
"""Pause between two checks whether a killed process has ended.

It may not be a child of this process, so the system sends no notification of its end."""


class NodeSurvived(StelaeError, code="NODE_SURVIVED"):
    """A process still runs long after SIGKILL."""


class FaultTarget:
    """The nodes of a cluster.

    Args:
        masters: the masters; empty: the cluster has none.
        servers: the tablet servers.
        tablets: the tablets under load.
        connection: a connection to the nodes, to find leaders and to transfer leadership.
        outlive: whether nodes that are started again continue to run after this process.
        disposable: the cluster, if what a node has stored may be destroyed.

    Attributes:
        replaced_count: how many disks were lost whose replicas the masters have replaced.
    """

    def __init__(
        self,
        masters: Sequence[NodeProcess],
        servers: Sequence[NodeProcess],
        tablets: Sequence[TabletId],
        connection: Connection,
        *,
        outlive: bool,
        disposable: ClusterWithMasters | None = None,
    ) -> None:
        self._cluster = disposable
        self.masters = tuple(masters)
        self.servers = tuple(servers)
        self.tablets = tuple(tablets)
        self.connection = connection
        self._outlive = outlive
        self._rules = {node: rules_paths(node) for node in self.nodes}
        self._killed: set[NodeProcess] = set()
        self._lost: list[NodeId] = []
        self.replaced_count = 0
        self._stopped: dict[NodeProcess, int] = {}
        self._ruled: set[tuple[NodeProcess, RulesKind]] = set()

    @property
    def disposable(self) -> bool:
        """Whether what a node has stored may be destroyed."""
        return self._cluster is not None

    @property
    def nodes(self) -> tuple[NodeProcess, ...]:
        """The masters, then the tablet servers."""
        return (*self.masters, *self.servers)

    @property
    def led_count(self) -> int:
        """The number of leaders of a cluster that works: one for each tablet under load, and that of the masters."""
        return len(self.tablets) + bool(self.masters)

    def has_rules(self, kind: RulesKind) -> bool:
        """Return whether the ``node.toml`` of every node names a file of these rules."""
        return all(kind in paths for paths in self._rules.values())

    def name_of(self, node_id: NodeId) -> str:
        """Return the name of the node with a uuid, or the uuid of a node that has lost its disk."""
        return next((node.name for node in self.nodes if node.node_id == node_id), node_id)

    def peers(self, node: NodeProcess) -> list[NodeProcess]:
        """Return all other nodes."""
        return [other for other in self.nodes if other is not node]

    async def leaders(self) -> dict[TabletId, NodeProcess]:
        """Return the node that leads each tablet under load, and the masters. A tablet may have no leader."""
        found = await leaders(self.connection, self.nodes)
        wanted = [*self.tablets, *([SYSTEM_TABLET] if self.masters else [])]
        known = {node.node_id: node for node in self.nodes}  # A server may have got another uuid meanwhile.
        led = {tablet_id: known.get(found[tablet_id].node_id) for tablet_id in wanted if tablet_id in found}
        return {tablet_id: node for tablet_id, node in led.items() if node is not None}

    def exited(self) -> list[NodeProcess]:
        """Return the nodes whose processes have ended without this target."""
        return [node for node in self.nodes if node not in self._killed and node.running_pid() is None]

    def start_exited(self) -> None:
        """Start the nodes whose processes have ended by themselves, so that what they hold can be read."""
        for node in self.exited():
            node.kill()  # Nothing is left to kill, but the ended process is still to be reaped.
            with suppress(NodeRuns):
                node.start(outlive=self._outlive)

    # -- breaking --------------------------------------------------------------------------------

    def kill(self, node: NodeProcess) -> None:
        """Kill a node with SIGKILL, and wait for its end. It flushes nothing.

        Raises:
            NodeSurvived: the process does not end.
        """
        self._killed.add(node)
        pid = node.running_pid()
        node.kill()
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while node.running_pid() == pid:
            if time.monotonic() > deadline:
                raise NodeSurvived(f"{node.name} (process {pid}) still runs {KILL_TIMEOUT_S:.0f} s after SIGKILL")
            time.sleep(POLL_S)

    def lose_disk(self, node: NodeProcess) -> None:
        """Kill a tablet server and destroy what it has stored. It comes back empty, with a new uuid, at its address.

        The old uuid retires later (:meth:`retire_replaced`): the masters must heal the tablets by themselves.

        Raises:
            NodeSurvived: the process does not end.
            FormatFailed: the directory cannot be formatted.
        """
        assert self._cluster is not None, "only a target that is disposable has a disk to lose"
        self.kill(node)
        fresh = self._cluster.replace_server(node)
        self.servers = tuple(fresh if one is node else one for one in self.servers)
        self._rules[fresh] = self._rules.pop(node)
        self._killed.remove(node)
        self._killed.add(fresh)
        self._lost.append(node.node_id)

    async def retire_replaced(self, timeout_s: float) -> Sequence[str]:
        """Wait until the masters have replaced all replicas on lost disks; then retire the old uuids, as a person does.

        Returns what is not replaced in time; empty: nothing, and no old uuid is left."""
        deadline = time.monotonic() + timeout_s
        while self._lost:
            try:
                problems = await self._retire_if_replaced()
            except StelaeError as error:
                problems = [str(error)]
            if problems and time.monotonic() > deadline:
                return problems
            await asyncio.sleep(LOOK_S)
        return []

    async def _retire_if_replaced(self) -> Sequence[str]:
        catalog = await find_catalog(self.connection)
        if catalog is None:
            return ["no master answers"]
        if problems := await unreplaced(catalog, self._lost):
            return problems
        while self._lost:
            await catalog.change(SetServerMode(node_id=self._lost[0], mode=ServerMode.RETIRING))
            self._lost.pop(0)
            self.replaced_count += 1
        return []

    async def problems(self) -> Sequence[str]:
        """Return what keeps the cluster from being whole: every tablet with all of its replicas, and they agree."""
        begun = time.monotonic()
        if problems := await self.retire_replaced(WHOLE_TIMEOUT_S):
            return problems
        catalog = await find_catalog(self.connection)
        if catalog is None:
            return ["no master answers"]
        left_s = begun + WHOLE_TIMEOUT_S - time.monotonic()
        return await wait_for_health(self.connection, catalog, lambda: None, timeout_s=left_s)

    async def members(self) -> Members:
        """Return the members of all tablets as the masters know them; empty: no master answers."""
        with suppress(StelaeError):
            if (catalog := await find_catalog(self.connection)) is not None:
                return await members_of_tablets(catalog)
        return {}

    async def until_replacing(self, node: NodeProcess, before: Members) -> bool:
        """Wait until the masters change the members of a tablet that a server had. False: they do not in time."""
        deadline = time.monotonic() + LONG_TIMEOUT_S
        while time.monotonic() < deadline:
            if is_being_replaced(node.node_id, before, await self.members()):
                return True
            await asyncio.sleep(LOOK_S)
        return False

    def suspend(self, node: NodeProcess) -> None:
        """Stop a node with SIGSTOP: its connections stay open, and it does nothing."""
        pid = node.running_pid()
        if pid is not None:
            os.kill(pid, signal.SIGSTOP)
            self._stopped[node] = pid

    def set_rules(self, node: NodeProcess, kind: RulesKind, rules: Sequence[Mapping[str, Any]]) -> None:
        """Replace the rules of a node. ``has_rules`` must hold."""
        self._ruled.add((node, kind))
        set_rules(self._rules[node][kind], rules)

    def cut_off(self, node: NodeProcess, directions: Sequence[str]) -> None:
        """Lose all messages between a node and all other nodes, in these directions. Clients still reach it."""
        rules = [{"peer": peer.node_id, "directions": directions, "drop": 1.0} for peer in self.peers(node)]
        self.set_rules(node, RulesKind.NETWORK, rules)

    def heal(self) -> None:
        """Undo everything: nodes run, nothing is lost or slow, and clocks are right. May be called at any time."""
        for node, pid in self._stopped.items():
            if node.running_pid() == pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self._stopped.clear()
        for node, kind in self._ruled:
            set_rules(self._rules[node][kind], [])
        self._ruled.clear()
        for node in sorted(self._killed, key=lambda node: node.name):
            with suppress(NodeRuns):  # `stelae cluster up` may have started it meanwhile.
                node.start(outlive=self._outlive)
            self._killed.remove(node)
