"""Planted bugs in the consensus engine ``local``. The runs are those of the profile ``local``."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.sim import local_mutations as mutations
from tests.sim.planted_bug import Mutant

CORE = "stelae_consensus_local.core:LocalCore"
LOCAL = ProfileKind.LOCAL

LOCAL_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="local: an entry is committed when it is appended",
        rule="durability 1",
        target="stelae_consensus_local.local_log:LocalLog.append",
        replacement=mutations.commit_at_append,
        invariant="persist_before_send",
        kind=LOCAL,
    ),
    Mutant(
        name="local: a restart continues the last term",
        rule="durability 9",
        target=f"{CORE}._begin_term",
        replacement=mutations.keep_the_term,
        invariant="log_matching",
        kind=LOCAL,
    ),
    Mutant(
        name="local: a read is served before an entry of the term is committed",
        rule="durability 10",
        target=f"{CORE}._on_read",
        replacement=mutations.read_while_configuring,
        invariant="read_index",
        kind=LOCAL,
    ),
    Mutant(
        name="local: a replica leads on after a failed write",
        rule="durability 7",
        target=f"{CORE}._on_persist_failed",
        replacement=mutations.lead_on,
        invariant="log_matching",
        kind=LOCAL,
    ),
)
