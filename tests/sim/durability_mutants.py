"""Planted bugs about what is durable when, and about messages of older terms; joined into ``mutants.MUTANTS``."""

from __future__ import annotations

from tests.sim import durability_mutations as mutations
from tests.sim.planted_bug import Mutant

DURABILITY_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="core: a read index is given before an entry of the leader's term is committed",
        rule="durability 10, behaviour C14, Raft thesis 6.4",
        target="stelae_consensus_raft.leader:Leader.read",
        replacement=mutations.read_before_the_first_entry_commits,
        invariant="read_index",
        seeds_max=4,
    ),
    Mutant(
        name="core: a read index is one entry behind what is committed",
        rule="behaviour C14",
        target="stelae_consensus_raft.reads:ReadQueue.add",
        replacement=mutations.answer_with_the_commit_of_before,
        invariant="read_index",
        seeds_max=4,
    ),
    Mutant(
        name="core: an append of an older term resets the election timer",
        rule="Raft 5.1, durability 9 (late answers)",
        target="stelae_consensus_raft.follower:Follower.on_append",
        replacement=mutations.old_append_resets_the_timer,
        invariant="stale_messages",
        seeds_max=8,
    ),
    Mutant(
        name="core: a vote request of an older term resets the election timer",
        rule="Raft 5.1",
        target="stelae_consensus_raft.election:Elections.on_request",
        replacement=mutations.old_vote_request_resets_the_timer,
        invariant="stale_messages",
        seeds_max=8,
    ),
    Mutant(
        name="core: a transfer of an older term is obeyed",
        rule="Raft thesis 3.10",
        target="stelae_consensus_raft.transfer:Transfers.on_timeout_now",
        replacement=mutations.old_timeout_now_is_obeyed,
        invariant="stale_messages",
        seeds_max=8,
    ),
    Mutant(
        name="core: a heartbeat of an older term resets the election timer",
        rule="Raft 5.1, durability 15",
        target="stelae_consensus_raft.follower:Follower.on_leader_alive",
        replacement=mutations.old_heartbeat_resets_the_timer,
        invariant="stale_messages",
        seeds_max=8,
    ),
    Mutant(
        name="flush: a store flushes one entry past what the log holds durably",
        rule="durability 3",
        target="stelae.host.flush:Flusher.flush",
        replacement=mutations.flush_one_entry_too_far,
        invariant="flush_durability",
        seed=6,
        seeds_max=24,
    ),
    Mutant(
        name="log engine: a begun write whose sync failed is synced again and taken for durable",
        rule="durability 7",
        target="stelae.spi.wal:Write.failure",
        replacement=mutations.retry_a_begun_write,
        invariant="failed_sync",
        seed=19,
        seeds_max=40,
    ),
    Mutant(
        name="log engine: a failed sync is repeated once",
        rule="durability 7",
        target="stelae_wal_segmented.writer:SegmentWriter.write",
        replacement=mutations.retry_in_place,
        invariant="failed_sync",
        seed=13,
        seeds_max=40,
    ),
    Mutant(
        name="shared log engine: a failed sync is repeated once",
        rule="durability 7",
        target="stelae_wal_shared.writer:Writer.write",
        replacement=mutations.retry_in_place,
        invariant="failed_sync",
        seed=26,
        seeds_max=40,
    ),
    Mutant(
        name="core: an election is won with one vote less than a majority",
        rule="Raft 5.2, durability 9",
        target="stelae_consensus_raft.election:Elections._count",
        replacement=mutations.win_with_one_vote_less,
        invariant="election_safety",
    ),
    Mutant(
        name="metadata: a replacement is not synced into its directory",
        rule="durability 9",
        target="stelae.host.replacing:_publish",
        replacement=mutations.rename_without_its_directory,
        invariant="terms_and_votes",
    ),
    Mutant(
        name="metadata: a replacement is renamed before its contents are synced",
        rule="durability 9 and 24",
        target="stelae.host.replacing:_write",
        replacement=mutations.write_a_replacement_without_sync,
        invariant="healthy_replicas",
    ),
)
