"""Planted bugs in changes of members. The runs are those of the profile ``membership``.

Two more need coincidences that runs of the simulator rarely have: a leader outside its config counts itself, and an
acknowledgement from before a removal counts. ``tests/conformance/test_consensus_raft.py`` plants them. Those of leases
are in ``lease_mutants.py``. A core that uses a clock instead of an interval cannot be written: it gets the time with
its events, and imports no clock (``tests/tidy/test_pure_cores.py``)."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.sim import member_mutations as mutations
from tests.sim.planted_bug import Mutant

RAFT = "stelae_consensus_raft"
STATE = f"{RAFT}.raft_state:RaftState"
MEMBERSHIP = ProfileKind.MEMBERSHIP

MEMBER_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="members: a config counts when it is committed, not when it is appended",
        rule="durability 11",
        target=f"{STATE}._load_members",
        replacement=mutations.take_configs_at_commit,
        invariant="commit_rule",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: a replaced config is not rolled back",
        rule="durability 11",
        target=f"{RAFT}.config_history:ConfigHistory.cut",
        replacement=mutations.keep_replaced_configs,
        invariant="config_follows_log",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: several changes are pending",
        rule="durability 11, behaviour C9",
        target=f"{RAFT}.membership:RaftMembership._change_pending",
        replacement=mutations.allow_several_pending,
        invariant="one_change_pending",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: a leader changes them before it has committed in its term",
        rule="durability 10, behaviour C9",
        target=f"{RAFT}.membership:RaftMembership.change",
        replacement=mutations.change_while_configuring,
        invariant="one_change_pending",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: acknowledgements of learners count",
        rule="durability 11, behaviour C7",
        target=f"{RAFT}.commit_rule:RaftCommitRule.majority_value",
        replacement=mutations.count_learners,
        invariant="commit_rule",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: votes of learners count",
        rule="durability 11",
        target=f"{RAFT}.election:Elections.on_reply",
        replacement=mutations.count_votes_of_learners,
        invariant="elected_by_majority",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: a candidate that its config removed counts its own vote",
        rule="durability 11",
        target=f"{RAFT}.election:Elections._count_own_vote",
        replacement=mutations.count_own_vote_always,
        invariant="elected_by_majority",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: acknowledgements of removed members count",
        rule="durability 11",
        target=f"{STATE}.load_peers",
        replacement=mutations.count_removed_peers,
        invariant="commit_rule",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: two voters change at once",
        rule="durability 11",
        target=f"{RAFT}.membership:changed_members",
        replacement=mutations.remove_two,
        invariant="one_change_pending",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: metadata gets a config before it is committed",
        rule="durability 11",
        target="stelae.host.executor:ReadyExecutor.execute",
        replacement=mutations.save_before_commit,
        invariant="config_follows_log",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: the compare-and-set id is ignored",
        rule="durability 27, behaviour C9",
        target=f"{RAFT}.membership:RaftMembership._wrong_config_id",
        replacement=mutations.ignore_the_compare_and_set_id,
        invariant="changes_are_fenced",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: one that has joined is removed once it falls silent",
        rule="durability 11, behaviour C12",
        target=f"{RAFT}.membership:RaftMembership._joins_until_us",
        replacement=mutations.remove_members_that_fall_silent,
        invariant="no_needless_removal",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: one is promoted because it lacks few entries",
        rule="durability 11, behaviour C10",
        target=f"{RAFT}.membership:RaftMembership._is_caught_up",
        replacement=mutations.promote_by_count,
        invariant="voters_have_caught_up",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: no member is ever promoted",
        rule="behaviour C10",
        target=f"{RAFT}.membership:RaftMembership._is_caught_up",
        replacement=mutations.never_promote,
        invariant="liveness",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="members: a lagging replica does not hear newer members",
        rule="behaviour C9",
        target="stelae.host.peer_traffic:PeerTraffic._check_sender",
        replacement=mutations.drop_messages_of_newer_members,
        invariant="liveness",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="new replicas: a voter that lost its replica gets an empty one",
        rule="durability 19, ADR 70",
        target="stelae.host.copy_requests:new_replica",
        replacement=mutations.give_voters_new_replicas,
        invariant="replica_creation",
        seed=4,
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="new replicas: a second request makes the replica again",
        rule="durability 22, ADR 70",
        target="stelae.server.tserver.new_replicas:NewReplicas._create",
        replacement=mutations.create_what_exists,
        invariant="replica_creation",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="new replicas: the superblock is durable before the log",
        rule="durability 22",
        target="stelae.lifecycle.tablet_loader:TabletLoader.save_consensus_metadata",
        replacement=mutations.save_the_superblock_first,
        invariant="replica_creation",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="witnesses: a caretaker serves",
        rule="durability 12",
        target=f"{STATE}.refresh_serving",
        replacement=mutations.serve_as_caretaker,
        invariant="no_service_without_rows",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="witnesses: a caretaker never hands over",
        rule="durability 12",
        target=f"{RAFT}.leadership_transfer:RaftTransfers._hand_back",
        replacement=mutations.never_hand_back,
        invariant="liveness",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="witnesses: the log begins at an entry that is not committed",
        rule="durability 12",
        target="stelae.host.copy_requests:new_replica",
        replacement=mutations.begin_at_the_last_entry,
        invariant="witness_log",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="witnesses: one that lost its replica gets an empty one",
        rule="durability 12 and 19",
        target="stelae.host.copy_requests:new_replica",
        replacement=mutations.give_witnesses_new_replicas,
        invariant="replica_creation",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="witnesses: a leader makes voters of them before they have rows",
        rule="durability 12",
        target=f"{RAFT}.membership:RaftMembership._promoted",
        replacement=mutations.promote_without_rows,
        invariant="voters_have_rows",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="witnesses: one without rows becomes a voter on request",
        rule="durability 12",
        target=f"{RAFT}.membership:RaftMembership._without_rows",
        replacement=mutations.allow_voters_without_rows,
        invariant="voters_have_rows",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="witnesses: the superblock is READY before the log exists",
        rule="durability 12 and 22",
        target="stelae.lifecycle.log_only_creation:LogOnlyCreation.begin",
        replacement=mutations.begin_with_a_ready_superblock,
        invariant="replica_creation",
        kind=MEMBERSHIP,
    ),
    Mutant(
        name="witnesses: a follower without rows answers scans",
        rule="durability 12",
        target="stelae.host.log_only:LogOnlyStore.scan",
        replacement=mutations.scan_no_rows,
        invariant="no_service_without_rows",
        kind=MEMBERSHIP,
    ),
)
