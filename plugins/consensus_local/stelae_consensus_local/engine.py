"""The engine: makes cores of tablets with one replica, and refuses configs with any other member."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from stelae.spi.consensus import ConsensusCore, ConsensusEngine, HardState, LogView
from stelae.spi.core_restore import refuse_contradictions
from stelae.spi.errors import ConfigError
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import MemberType, TabletConfig
from stelae_consensus_local.config import LocalConfig
from stelae_consensus_local.core import LocalCore
from stelae_consensus_local.local_log import LocalLog
from stelae_consensus_local.no_replica import NoReplicaCore

_REPAIR = "the tablet has no other replica: restore it from a backup"


class LocalEngine(ConsensusEngine):
    """Consensus of one replica with itself: an entry is committed when it is durable. It sends no messages.

    Term, vote, config entries and empty entries are the same as those of ``raft``, so either engine can continue what
    the other one wrote (``stelae tablet convert-consensus``)."""

    name: ClassVar[str] = "local"
    Config: ClassVar[type[Any]] = LocalConfig
    message_types: ClassVar[Mapping[str, type[msgspec.Struct]]] = MappingProxyType({})

    @classmethod
    def check_members(cls, node_id: NodeId, config: TabletConfig) -> None:
        """Refuse a config whose only member is not this node as a ``VOTER``. Raises ``ConfigError``."""
        members = config.members
        if len(members) == 1 and members[0].node_id == node_id and members[0].member_type is MemberType.VOTER:
            return
        found = ", ".join(f"{member.node_id} ({member.member_type})" for member in members) or "none"
        raise ConfigError(
            f"the consensus engine 'local' serves a tablet whose only member is this node, {node_id}, as VOTER; "
            f"the members are: {found}",
            hint="Choose an engine that replicates: [engines] consensus = 'raft'.",
        )

    @classmethod
    def restore(
        cls,
        *,
        node_id: NodeId,
        hard_state: HardState,
        log: LogView,
        commit: int,
        applied: int,
        committed_config: TabletConfig,
        config: Any,
        rng: random.Random,
        now_us: int,
    ) -> ConsensusCore:
        """Make the core of a replica; see ``ConsensusEngine.restore``. It draws nothing from ``rng``.

        Raises:
            ConfigError: the newest config has another member than this node.
            Corrupt: term, log, commit index and applied index contradict each other.
        """
        refuse_contradictions(hard_state, log, commit, applied, repair=_REPAIR)
        local_log = LocalLog(log, max(commit, log.base.index), committed_config)
        cls.check_members(node_id, local_log.config)
        return LocalCore(
            node_id=node_id,
            hard_state=hard_state,
            log=local_log,
            applied=applied,
            pending_bytes_max=config.proposals_pending_bytes_max,
            now_us=now_us,
        )

    @classmethod
    def restore_voter(
        cls, *, node_id: NodeId, hard_state: HardState, last: OpId | None, config: Any, now_us: int
    ) -> ConsensusCore:
        """Make the core of a tombstone. A local tablet has no peer that could ask for a vote, so it does nothing."""
        return NoReplicaCore(node_id=node_id, hard_state=hard_state, last=last)
