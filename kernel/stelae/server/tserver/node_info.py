"""Serves requests for a node's own state: its release, settings and replicas, and the peers that it reaches."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from stelae import __version__
from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.settings import ChosenEngine, NodeConfig
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import decode, encode
from stelae.protocol.node_messages import (
    NODE,
    FailedReplica,
    NodeInfo,
    NodeRequest,
    PeerContact,
    ReplicaFacts,
    SettingValue,
)
from stelae.server.frames import only_frame
from stelae.server.tserver.replica_stats import ReplicaStats
from stelae.spi.ids import NodeId
from stelae.spi.members import Member, MemberType
from stelae.wire.requests import Request

_SECTIONS = ("wire", "log", "clock", "workers", "maintenance")
_ENGINES = ("wal", "consensus", "store", "policy")


class NodeInfoService:
    """Serves ``NODE`` requests.

    Args:
        stats: sizes and unhealthy followers; ``HeartbeatSender`` shares its own.
        location: of the node, as in ``[tserver] location``.
        masters: returns the masters that a tablet server knows.
    """

    def __init__(
        self, node: Node, stats: ReplicaStats, location: str, masters: Callable[[], Mapping[NodeId, str]]
    ) -> None:
        self._node = node
        self._stats = stats
        self._location = location
        self._known_masters = masters
        self._settings = flat_settings(node.config)

    def start(self) -> None:
        """Register the handler. The node's uptime counts from here."""
        self._started_us = self._node.turns.now_us()
        self._node.messenger.serve(NODE, self._serve)

    def _serve(self, request: Request) -> None:
        decode(only_frame(request), NodeRequest)
        request.reply([encode(self.describe())])

    def describe(self) -> NodeInfo:
        """Return the present state of the node."""
        node, config = self._node, self._node.config
        is_master = config.tablet is not None and config.tablet.id == SYSTEM_TABLET
        return NodeInfo(
            node_id=node.node_id,
            incarnation=node.messenger.identity.incarnation_id,
            role="master" if is_master else "tserver",
            version=__version__,
            cluster_id=config.cluster_id,
            address=node.address,
            location=self._location,
            uptime_ms=(node.turns.now_us() - self._started_us) // 1000,
            wall_us=node.engines.services.clock.wall_us(),
            free_bytes=node.free_bytes(),
            masters=tuple(self._masters().items()),
            listed_masters=tuple((member.node_id, member.address) for member in self._listed_masters()),
            peers=self._peers(),
            replicas=tuple(self._facts(replica) for _, replica in sorted(node.replicas.items())),
            failed=self._failed(),
            settings=self._settings,
        )

    def _listed_masters(self) -> Sequence[Member]:
        tablet = self._node.config.tablet
        return tablet.members if tablet is not None and tablet.id == SYSTEM_TABLET else self._node.config.masters

    def _masters(self) -> Mapping[NodeId, str]:
        """Return the masters: on a master those of the system tablet's config, or before there is one, of its file."""
        tablet = self._node.config.tablet
        if tablet is None or tablet.id != SYSTEM_TABLET:
            return self._known_masters()
        replica = self._node.replicas.get(SYSTEM_TABLET)
        members = tablet.members if replica is None else replica.status.config.members
        return {member.node_id: member.address for member in members}

    def _peers(self) -> tuple[PeerContact, ...]:
        """Return the nodes that this node must reach: its masters, and the other members of its tablets."""
        node = self._node
        known: dict[NodeId, str] = dict(self._known_masters())
        for replica in node.replicas.values():
            known |= {member.node_id: member.address for member in replica.status.config.members}
        known.pop(node.node_id, None)
        connected = node.messenger.connected
        return tuple(
            PeerContact(node_id=peer, address=address, connected=connected(peer) is not None)
            for peer, address in sorted(known.items())
        )

    def _facts(self, replica: Replica) -> ReplicaFacts:
        status, tablet_id = replica.status, replica.tablet_id
        members = status.config.members
        return ReplicaFacts(
            tablet_id=tablet_id,
            table_id=replica.flusher.superblock.table_name,
            size_bytes=self._stats.size_bytes.get(tablet_id, 0),
            schema_version=replica.applier.store.schema.version,
            config=status.config.op_id,
            members=tuple(member.node_id for member in members),
            learners=status.config.learners(),
            witnesses=tuple(m.node_id for m in members if m.member_type is MemberType.WITNESS),
            pinned=tuple(m.node_id for m in members if m.pinned is True),
            moves=tuple((m.node_id, m.replaces) for m in members if m.replaces is not msgspec.UNSET),
            change_pending=status.config.op_id != status.committed_config.op_id,
            unhealthy=self._stats.unhealthy.get(tablet_id, ()),
            copies_needed=tuple(peer.node_id for peer in status.peers if peer.state == "COPY"),
            log_base=replica.flusher.log_base,
        )

    def _failed(self) -> tuple[FailedReplica, ...]:
        source = self._node.tablets
        lost = source.unknown_op_ids if isinstance(source, TabletLoader) else set()
        return tuple(
            FailedReplica(tablet_id=tablet_id, reason=reason, op_id_lost=tablet_id in lost)
            for tablet_id, reason in sorted(self._node.failed_tablets.items())
        )


def flat_settings(config: NodeConfig) -> dict[str, SettingValue]:
    """Return every setting that a node runs with, by ``section.name``, and by ``kind.engine.name`` for engines."""
    found: dict[str, SettingValue] = {}
    for section in _SECTIONS:
        found |= _flat(section, getattr(config, section))
    for section, settings in config.extra.items():
        found |= _flat(section, settings)
    for kind in _ENGINES:
        picked: ChosenEngine | None = getattr(config, kind)
        if picked is not None:
            found[f"engines.{kind}"] = picked.name
            found |= _flat(f"{kind}.{picked.name}", picked.config)
    return found


def _flat(prefix: str, settings: Any) -> dict[str, SettingValue]:
    """Return the fields of a settings dataclass by ``prefix.name``.

    A value that is no boolean, number or string becomes its ``repr``: engines from outside may have any type."""
    if not dataclasses.is_dataclass(settings):
        return {}
    found: dict[str, SettingValue] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        found[f"{prefix}.{field.name}"] = value if isinstance(value, bool | int | float | str) else repr(value)
    return found
