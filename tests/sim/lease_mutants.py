"""Planted bugs in read leases. The runs are those of the profile ``leases``."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.sim import lease_mutations as mutations
from tests.sim.planted_bug import Mutant

RAFT = "stelae_consensus_raft"
LEASE = f"{RAFT}.read_lease:ReadLease"
STATE = f"{RAFT}.raft_state:RaftState"
LEASES = ProfileKind.LEASES

LEASE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="leases: the drift of the clocks is ignored",
        rule="durability 13",
        target=f"{RAFT}.raft_state:lease_length_us",
        replacement=mutations.ignore_drift,
        invariant="lease_exclusive",
        kind=LEASES,
    ),
    Mutant(
        name="leases: a lease goes on over a transfer",
        rule="durability 13",
        target=f"{LEASE}.give_up",
        replacement=mutations.keep_over_transfer,
        invariant="lease_exclusive",
        kind=LEASES,
    ),
    Mutant(
        name="leases: a lease counts from the answer",
        rule="durability 13",
        target=f"{LEASE}.promised",
        replacement=mutations.count_from_answer,
        invariant="lease_exclusive",
        kind=LEASES,
    ),
    Mutant(
        name="leases: a voter forgets its promise at a start",
        rule="durability 13",
        target=f"{STATE}._init_promises",
        replacement=mutations.forget_at_start,
        invariant="lease_exclusive",
        kind=LEASES,
    ),
    Mutant(
        name="leases: a lease goes on over changes of members",
        rule="durability 13",
        target=f"{LEASE}.config_changed",
        replacement=mutations.keep_over_changes,
        invariant="lease_exclusive",
        kind=LEASES,
    ),
    Mutant(
        name="leases: an answer without a promise counts",
        rule="durability 13",
        target=f"{RAFT}.leader:Leader.on_reply",
        replacement=mutations.count_any_answer,
        invariant="lease_exclusive",
        kind=LEASES,
    ),
    Mutant(
        name="leases: a promise is given before it is durable",
        rule="durability 1, durability 13",
        target=f"{STATE}.promised_us",
        replacement=mutations.promise_before_durable,
        invariant="lease_exclusive",
        kind=LEASES,
    ),
    Mutant(
        name="leases: a lease never ends",
        rule="durability 13",
        target=f"{LEASE}.is_valid",
        replacement=mutations.never_end,
        invariant="lease_exclusive",
        kind=LEASES,
    ),
)
