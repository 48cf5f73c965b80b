"""The commit rule: which entries a leader may commit, and what every member holds (durability rules 4 and 9).

A leader commits up to the index that a majority of the voters holds durably, if the entry there is of its own term. An
entry of an older term commits only through a later one of the current term, because a majority of copies of it proves
nothing (Raft paper, 5.4.2 and figure 8)."""

from __future__ import annotations

from stelae_consensus_raft.leader_state import LeaderState
from stelae_consensus_raft.progress import Progress
from stelae_consensus_raft.quorum import reached_by
from stelae_consensus_raft.raft_state import RaftState


class RaftCommitRule:
    """Computes majorities from the progress of the peers, and advances the commit index."""

    __slots__ = ("_state",)

    def __init__(self, state: RaftState) -> None:
        self._state = state

    def majority_value(self, own: int, values: list[int]) -> int:
        """Return the highest value that a majority of the voters has reached.

        ``values`` are those of the other voters, ``own`` is this replica's. It counts only if this replica votes."""
        if self._state.is_voter:
            values.append(own)
        return reached_by(self._state.majority, values)

    def advance(self, leadership: LeaderState) -> None:
        """Commit up to the index that a majority holds durably, if the entry there is of the current term.

        The leader's own log counts up to its durable index only."""
        state = self._state
        index = self.majority_value(state.durable.index, [peer.match for peer in leadership.voting])
        if index > state.commit and state.log.term_at(index) == state.term:
            state.commit_to(index)

    def would_commit(self, own: int, peer: Progress | None = None, match: int = 0) -> bool:
        """Return true if more would commit with this log durable up to ``own`` and ``peer``'s up to ``match``."""
        leadership = self._state.leadership
        if leadership is None:
            return False
        matches = [max(p.match, match) if p is peer else p.match for p in leadership.voting]
        return self.majority_value(own, matches) > self._state.commit

    def advance_all_replicated(self, leadership: LeaderState) -> None:
        """Advance the all-replicated index: up to it every member holds the log durably, learners included.

        A member that has acknowledged nothing in this term counts as 0. Nothing is known while a config is pending: a
        member that it removes is one again if another leader replaces its entry, and needs its log then."""
        state = self._state
        if state.config.op_id != state.configs.committed.op_id:
            return
        matches = [peer.match for peer in leadership.peers.values()]
        state.advance_all_replicated(min([state.durable.index, *matches]))
