"""Planted bugs in changes of members. The runs are those of the profile ``membership``."""

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
)
