"""The engine: makes cores from durable state, and refuses durable state that contradicts itself."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from stelae.spi.consensus import (
    CHANGES_MEMBERS,
    RECOVERS,
    REPLICATES,
    ConsensusCore,
    ConsensusEngine,
    HardState,
    LogView,
)
from stelae.spi.core_restore import refuse_contradictions
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import TabletConfig
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.core import RaftCore
from stelae_consensus_raft.messages import MESSAGE_TYPES, VOTE_REQUEST_KINDS
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.voter_core import VoterCore

_REPAIR = "replace this replica"


class RaftEngine(ConsensusEngine):
    """Raft with pre-vote, vote withholding, pipelined replication and read index."""

    name: ClassVar[str] = "raft"
    Config: ClassVar[type[Any]] = RaftConfig
    capabilities: ClassVar[frozenset[str]] = frozenset({CHANGES_MEMBERS, RECOVERS, REPLICATES})
    message_types = MESSAGE_TYPES
    is_vote_request = VOTE_REQUEST_KINDS

    @classmethod
    def beat_interval_ms(cls, config: Any) -> int:
        """Return a fifth of the election timeout: four heartbeats may be lost before a follower campaigns."""
        return max(1, int(config.election_timeout_ms) // 5)

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
        """Make the core of a replica; see ``ConsensusEngine.restore``.

        Raises:
            Corrupt: term, log, commit index and applied index contradict each other.
        """
        refuse_contradictions(hard_state, log, commit, applied, repair=_REPAIR)
        state = RaftState(
            node_id=node_id,
            hard_state=hard_state,
            log=log,
            commit=commit,
            applied=applied,
            committed_config=committed_config,
            settings=config,
            rng=rng,
            now_us=now_us,
        )
        return RaftCore(state)

    @classmethod
    def restore_voter(
        cls, *, node_id: NodeId, hard_state: HardState, last: OpId | None, config: Any, now_us: int
    ) -> ConsensusCore:
        """Make the core of a replica without a log: a tombstone, or a copy that is under way."""
        return VoterCore(node_id=node_id, hard_state=hard_state, last=last, settings=config, now_us=now_us)
