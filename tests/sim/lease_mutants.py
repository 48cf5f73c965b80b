"""Planted bugs in read leases. The runs are those of the profile ``leases``.

``tests/unit/consensus_raft/test_lease_schedules.py`` plants more of them, which need rarer coincidences."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.sim import lease_mutations as mutations
from tests.sim.planted_bug import Mutant

RAFT = "stelae_consensus_raft"

LEASE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="leases: a lease never ends",
        rule="durability 13",
        target=f"{RAFT}.read_lease:ReadLease.is_valid",
        replacement=mutations.never_end,
        invariant="lease_exclusive",
        kind=ProfileKind.LEASES,
    ),
    Mutant(
        name="leases: a lease is kept over a handover",
        rule="durability 13",
        target=f"{RAFT}.read_lease:ReadLease.give_up",
        replacement=mutations.keep_over_handover,
        invariant="lease_exclusive",
        kind=ProfileKind.LEASES,
        seed=3,
    ),
)
