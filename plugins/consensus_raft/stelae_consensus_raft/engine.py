"""The engine: makes cores from durable state, and refuses durable state that contradicts itself."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from stelae.spi.consensus import CHANGES_MEMBERS, REPLICATES, ConsensusCore, ConsensusEngine, HardState, LogView
from stelae.spi.errors import Corrupt
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import TabletConfig
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.core import RaftCore
from stelae_consensus_raft.messages import MESSAGE_TYPES, VOTE_REQUEST_KINDS
from stelae_consensus_raft.raft_state import RaftState
from stelae_consensus_raft.voter_core import VoterCore


class RaftEngine(ConsensusEngine):
    """Raft with pre-vote, vote withholding, pipelined replication and read index."""

    name: ClassVar[str] = "raft"
    Config: ClassVar[type[Any]] = RaftConfig
    capabilities: ClassVar[frozenset[str]] = frozenset({CHANGES_MEMBERS, REPLICATES})
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
        _refuse_contradictions(hard_state, log, commit, applied)
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


def _refuse_contradictions(hard_state: HardState, log: LogView, commit: int, applied: int) -> None:
    """Raise ``Corrupt`` if the durable parts contradict each other.

    A term becomes durable before any entry of it. So a log with a later term than the metadata means lost metadata."""
    fact = None
    if log.last.term > hard_state.term:
        fact = f"the log ends at {log.last}, but the durable term is {hard_state.term}"
    elif commit > log.last.index:
        fact = f"the commit index is {commit}, but the log ends at {log.last}"
    elif applied > max(commit, log.base.index):
        fact = f"the applied index {applied} is above the commit index {commit}"
    if fact is not None:
        raise Corrupt(f"{fact}; replace this replica")
