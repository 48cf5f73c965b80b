"""Planted bugs about how long a log is kept; joined into ``mutants.MUTANTS``."""

from __future__ import annotations

from tests.sim import retention_mutations as mutations
from tests.sim.planted_bug import Mutant

RETENTION_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="retention: followers hold nothing for a peer that lags",
        rule="durability 4",
        target="stelae_consensus_raft.raft_state:RaftState.advance_all_replicated",
        replacement=mutations.follow_and_hold_nothing,
        invariant="log_retention",
    ),
    Mutant(
        name="retention: a new leader leaves out the peers that it has not heard yet",
        rule="durability 4",
        target="stelae_consensus_raft.commit_rule:RaftCommitRule.advance_all_replicated",
        replacement=mutations.count_only_peers_that_were_heard,
        invariant="log_retention",
    ),
    Mutant(
        name="retention: after a start all that is flushed may go",
        rule="durability 4",
        target="stelae.host.log_retention:LogRetentionLimit.__init__",
        replacement=mutations.start_without_holding,
        invariant="log_retention",
    ),
)
