"""Planted bugs in the retention of logs; part of ``mutants.MUTANTS``."""

from __future__ import annotations

from tests.sim import retention_mutations as mutations
from tests.sim.planted_bug import Mutant

RETENTION_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="retention: followers retain nothing for a lagging replica",
        rule="durability 4",
        target="stelae_consensus_raft.raft_state:RaftState.advance_all_replicated",
        replacement=mutations.retain_nothing_as_follower,
        invariant="log_retention",
    ),
    Mutant(
        name="retention: a new leader ignores the peers that it has not heard from yet",
        rule="durability 4",
        target="stelae_consensus_raft.commit_rule:RaftCommitRule.advance_all_replicated",
        replacement=mutations.count_only_peers_that_were_heard,
        invariant="log_retention",
    ),
    Mutant(
        name="retention: after a start everything that is flushed may be collected",
        rule="durability 4",
        target="stelae.host.log_retention:LogRetentionLimit.__init__",
        replacement=mutations.start_without_retention,
        invariant="log_retention",
    ),
)
