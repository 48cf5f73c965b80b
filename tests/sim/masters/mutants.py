"""Planted bugs of the masters: each replaces one function and must be caught by the invariant it breaks."""

from __future__ import annotations

from tests.sim.masters import mutations
from tests.sim.mutants import Mutant

CORE = "stelae.server.master.core"
FENCES = "stelae.protocol.fences"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="exactly once: a request that comes again is taken for new",
        rule="durability 16, behaviour M1",
        target=f"{CORE}.change_requests:known_verdict",
        replacement=mutations.recognise_nothing,
        invariant="acknowledged_changes",
    ),
    Mutant(
        name="exactly once: the answer is not in the batch of its change",
        rule="durability 16, behaviour M1",
        target=f"{CORE}.change_requests:identified",
        replacement=mutations.keep_no_answer,
        invariant="acknowledged_changes",
    ),
    Mutant(
        name="core: a leader serves before an entry of its own term is applied",
        rule="durability 26",
        target=f"{CORE}.master_core:MasterCore._has_begun",
        replacement=mutations.begin_at_once,
        invariant="one_way",
        seed=6,
    ),
    Mutant(
        name="locks: tables and tablets are not locked",
        rule="source, ordering contract, step 1",
        target=f"{CORE}.locks:Locks.conflict",
        replacement=mutations.lock_identities_alone,
        invariant="one_way",
        seed=22,
    ),
    Mutant(
        name="operations: an unknown outcome counts as a failure and gives its locks back",
        rule="durability 26",
        target=f"{CORE}.operations:Operations.decided",
        replacement=mutations.unknown_is_failure,
        invariant="acknowledged_changes",
        seed=7,
    ),
    Mutant(
        name="operations: an unknown outcome is answered as done",
        rule="durability 26",
        target=f"{CORE}.change_requests:ChangeRequests.decided",
        replacement=mutations.unknown_is_success,
        invariant="acknowledged_changes",
    ),
    Mutant(
        name="operations: a change is answered before it is committed",
        rule="source, ordering contract, steps 4 to 6",
        target=f"{CORE}.change_requests:ChangeRequests.begin",
        replacement=mutations.answer_before_the_commit,
        invariant="acknowledged_changes",
    ),
    Mutant(
        name="operations: tablets are replicated apart from their table",
        rule="source, one batch for each logical operation",
        target=f"{CORE}.change_requests:ChangeRequests.begin",
        replacement=mutations.replicate_in_two,
        invariant="never_half_visible",
    ),
    Mutant(
        name="changes: a partition is left without a tablet",
        rule="behaviour M1",
        target=f"{CORE}.ddl:new_tablets",
        replacement=mutations.leave_one_partition_out,
        invariant="never_half_visible",
    ),
    Mutant(
        name="reconciler: a tablet that timed out lives on beside the one that replaces it",
        rule="source, appendix B, background scanning",
        target=f"{CORE}.reconcile:_replaced",
        replacement=mutations.replace_beside_the_old,
        invariant="never_half_visible",
        seed=35,
    ),
    Mutant(
        name="reconciler: tablets without a record are deleted",
        rule="source, appendix A, case 1; behaviour M4",
        target=f"{CORE}.reconcile:_reported",
        replacement=mutations.delete_strangers,
        invariant="strangers_untouched",
    ),
    Mutant(
        name="reconciler: newcomers are evicted, by a config that is not on record",
        rule="behaviour M4",
        target=f"{CORE}.reconcile:_evict",
        replacement=mutations.evict_by_an_invented_config,
        invariant="no_wrong_deletion",
    ),
    Mutant(
        name="reconciler: replicas of a table that can be recalled are deleted",
        rule="durability 27",
        target=f"{CORE}.reconcile:_live_tablet",
        replacement=mutations.delete_what_can_be_recalled,
        invariant="no_wrong_deletion",
    ),
    Mutant(
        name="reconciler: a config that is reported goes on record, old or new",
        rule="source, appendix A, cases 3 and 4",
        target=f"{CORE}.reconcile:_running",
        replacement=mutations.believe_any_report,
        invariant="one_way",
    ),
    Mutant(
        name="reconciler: an alteration ends although tablets do not know it",
        rule="source, appendix B, heartbeating, step 11",
        target=f"{CORE}.master_core:settle",
        replacement=mutations.settle_at_once,
        invariant="one_way",
    ),
    Mutant(
        name="changes: a second change of a schema does not wait until every tablet has the first",
        rule="behaviour M1",
        target=f"{CORE}.ddl:_check_settled",
        replacement=mutations.alter_at_once,
        invariant="schemas_in_reach",
    ),
    Mutant(
        name="fences: an eviction takes effect whatever config the replica has",
        rule="durability 27; source, appendix A, cases 3 and 4",
        target=f"{FENCES}:_delete",
        replacement=mutations.delete_without_the_fence,
        invariant="no_wrong_deletion",
        seed=24,
    ),
    Mutant(
        name="freshness: a leader's answer counts before the catalog holds what it names",
        rule="source, follower reads; explanation, masters: reading from any master",
        target=f"{CORE}.freshness:Freshness.told",
        replacement=mutations.count_before_it_is_applied,
        invariant="bounded_staleness",
    ),
    Mutant(
        name="freshness: a catalog is as old as the leader's answer, not as the question",
        rule="source, follower reads; explanation, masters: reading from any master",
        target=f"{CORE}.master_core:MasterCore._take",
        replacement=mutations.count_from_the_answer,
        invariant="bounded_staleness",
    ),
    Mutant(
        name="reports: of two that claim to lead a tablet the one of the higher node id counts",
        rule="behaviour M4; Raft 5.1",
        target=f"{CORE}.reconcile:ClusterView.leader_of",
        replacement=mutations.lead_by_node_id,
        invariant="newest_reports",
    ),
    Mutant(
        name="reports: of two that claim to lead a tablet the first one counts, dead or not",
        rule="behaviour M4; Raft 5.1",
        target=f"{CORE}.reconcile:ClusterView.leader_of",
        replacement=mutations.lead_by_the_first_report,
        invariant="newest_reports",
    ),
    Mutant(
        name="reports: a heartbeat that was overtaken by a later one counts",
        rule="source, heartbeats; behaviour M4",
        target=f"{CORE}.servers:Servers.heard",
        replacement=mutations.take_what_was_overtaken,
        invariant="newest_reports",
    ),
    Mutant(
        name="reports: a late heartbeat of a former run of a server is taken for a restart",
        rule="source, heartbeats; behaviour M4",
        target=f"{CORE}.servers:Servers.heard",
        replacement=mutations.take_a_former_run_for_a_restart,
        invariant="newest_reports",
        seed=103,
    ),
)
