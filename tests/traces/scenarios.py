"""The scenarios that the traces show: which trace shows what, and from which source it comes.

The sources are the seeds "Consensus" and "Raft config change" (the numbered processes and what is described beside
them), the sections 3.10, 4.1, 4.2.1 to 4.2.3, 6.4 and 6.4.1 of the Raft dissertation, and, for traces that come from
elsewhere, the Raft paper, the seed "Tablet copy" and the rules of ``docs/explanation/durability.md``.

One thing has no trace. Reads by followers (dissertation 6.4) are not offered: a follower refuses a read and names the
leader."""

from __future__ import annotations

from dataclasses import dataclass

CONSENSUS = 'seed "Consensus"'
CONFIG_CHANGE = 'seed "Raft config change"'
TABLET_COPY = 'seed "Tablet copy"'
DISSERTATION = "Raft dissertation"
PAPER = "Raft paper"
DURABILITY = "durability rule"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario of a source, and the traces that show it."""

    source: str
    section: str
    """The section of the source, or its step or rule; where it has a number, the number alone."""
    summary: str
    traces: tuple[str, ...]
    """Names of trace files, without ``.trace``. The opening comment of each names the source."""


def _scenario(source: str, section: str, summary: str, *traces: str) -> Scenario:
    return Scenario(source, section, summary, traces)


SCENARIOS = (
    _scenario(
        CONSENSUS, "The write ahead log", "entries commit in the order in which they were proposed", "replication"
    ),
    _scenario(CONSENSUS, "The write ahead log", "nothing counts before it is durable", "replication", "torn_ready"),
    _scenario(CONSENSUS, "Group commit", "entries of one step are written and sent together", "replication"),
    _scenario(CONSENSUS, "Configs and roles", "2f+1 voters serve with f of them down", "faults_tolerated"),
    _scenario(CONSENSUS, "Configs and roles", "with more than f down, nothing is committed", "faults_tolerated"),
    _scenario(CONSENSUS, "Configs and roles", "f = 0: a single voter", "faults_tolerated", "learner"),
    _scenario(CONSENSUS, "Configs and roles", "followers are passive while a leader leads", "faults_tolerated"),
    _scenario(CONSENSUS, "Configs and roles", "a follower becomes active when its leader stops", "faults_tolerated"),
    _scenario(CONSENSUS, "Configs and roles", "a learner counts for no majority", "learner"),
    _scenario(CONSENSUS, "Configs and roles", "a learner becomes a follower once it has caught up", "roles"),
    _scenario(CONSENSUS, "Configs and roles", "the diagram of state changes", "roles"),
    _scenario(CONSENSUS, "Assembling", "the first leader replicates the initial config", "election", "hinted_leader"),
    _scenario(CONSENSUS, "Assembling", "the creator's hint on a first leader", "hinted_leader"),
    _scenario(CONSENSUS, "Assembling", "the hinted leader fails before it replicated the config", "hinted_leader"),
    _scenario(CONSENSUS, "Rebooting", "the last committed config comes from the log", "reboot"),
    _scenario(CONSENSUS, "Rebooting", "a hint does not count where a config exists", "reboot", "hinted_leader"),
    _scenario(CONSENSUS, "RaftConfig states", "BOOTSTRAPPING: a majority replays its logs", "reboot"),
    _scenario(CONSENSUS, "RaftConfig states", "CONFIGURING: no requests yet", "hinted_leader", "reboot"),
    _scenario(CONSENSUS, "RaftConfig states", "RUNNING", "hinted_leader", "reboot"),
    _scenario(CONFIG_CHANGE, "One-by-one", "one change at a time", "change_rolled_back", "tablet_moved"),
    _scenario(CONFIG_CHANGE, "adding, step 1", "the log is copied to the new node", "member_with_a_copy"),
    _scenario(CONFIG_CHANGE, "adding, step 1", "the source of the copy crashes", "member_with_a_copy"),
    _scenario(CONFIG_CHANGE, "adding, step 1", "the driver crashes and leaves a replica behind", "member_with_a_copy"),
    _scenario(CONFIG_CHANGE, "adding, step 1", "the new node crashes", "new_node_crashes"),
    _scenario(CONFIG_CHANGE, "adding, step 2", "added without a vote, then promoted", "member_added"),
    _scenario(CONFIG_CHANGE, "adding, step 2", "promoted only when caught up", "member_catches_up_slowly"),
    _scenario(CONFIG_CHANGE, "adding, step 2", "several at once, promoted one by one", "members_join_together"),
    _scenario(CONFIG_CHANGE, "adding, step 2", "the change is lost with its leader", "change_rolled_back"),
    _scenario(CONFIG_CHANGE, "adding, step 2", "the driver sends the change again", "config_after_restart"),
    _scenario(CONFIG_CHANGE, "adding, step 2", "refused for a weakness in the configuration", "no_live_majority"),
    _scenario(
        CONFIG_CHANGE, "adding, step 3", "in force when appended", "config_in_force_when_appended", "member_added"
    ),
    _scenario(
        CONFIG_CHANGE, "adding, step 4", "the leader keeps the log for it", "member_with_a_copy", "all_replicated"
    ),
    _scenario(CONFIG_CHANGE, "adding, step 5", "committed and durable", "member_added", "config_after_restart"),
    _scenario(CONFIG_CHANGE, "implementation details", "a restart finds a change in progress", "config_after_restart"),
    _scenario(
        CONFIG_CHANGE, "implementation details", "a change is rolled back", "change_rolled_back", "config_after_restart"
    ),
    _scenario(CONFIG_CHANGE, "removing, step 1", "the request goes to the leader", "member_removed"),
    _scenario(CONFIG_CHANGE, "removing, step 2", "a follower is removed", "member_removed"),
    _scenario(CONFIG_CHANGE, "removing, step 3", "the leader hands over first", "leader_removed"),
    _scenario(CONFIG_CHANGE, "disruptive servers", "one that was removed", "removed_server_disturbs_nobody"),
    _scenario(CONFIG_CHANGE, "disruptive servers", "one with a whole log", "removed_server_with_whole_log"),
    _scenario(CONFIG_CHANGE, "disruptive servers", "one that was cut off", "partitioned_server", "vote_withheld"),
    _scenario(CONFIG_CHANGE, "moving a tablet", "add, then remove", "tablet_moved"),
    _scenario(CONFIG_CHANGE, "restoring availability", "steps 1 to 5", "availability_restored"),
    _scenario(CONFIG_CHANGE, "restoring availability", "the config is an entry of the log", "recovered_alone"),
    _scenario(CONFIG_CHANGE, "appendix, t=1 to t=5", "a witness until the rows are there", "witness"),
    _scenario(CONFIG_CHANGE, "appendix, t=3", "three of four are needed", "witness_needs_three_of_four"),
    _scenario(CONFIG_CHANGE, "appendix, t=4", "the failed voter returns before that", "witness_not_needed"),
    _scenario(CONFIG_CHANGE, "appendix, electable", "only the witness has an entry", "witness_is_caretaker"),
    _scenario(DURABILITY, "11", "a change is cancelled before it is appended", "change_aborted"),
    _scenario(DURABILITY, "11", "a change that leaves no possible leader is refused", "changes_refused"),
    _scenario(DURABILITY, "12", "a caretaker serves nobody and hands over", "witness_is_caretaker"),
    _scenario(DURABILITY, "12", "with its rows it is a caretaker until it is a VOTER", "witness_leads_with_rows"),
    _scenario(DISSERTATION, "3.10", "a transfer succeeds", "transfer"),
    _scenario(DISSERTATION, "3.10", "the successor lags, and gets the log first", "transfer"),
    _scenario(DISSERTATION, "3.10", "the successor dies, and the leader goes on", "transfer_target_dies"),
    _scenario(DISSERTATION, "3.10", "TimeoutNow comes late", "timeout_now_delayed"),
    _scenario(DISSERTATION, "4.1", "majorities of both configs overlap", "config_in_force_when_appended"),
    _scenario(DISSERTATION, "4.1", "a config is rolled back", "change_rolled_back"),
    _scenario(DISSERTATION, "4.1", "promotions one by one", "members_join_together"),
    _scenario(DISSERTATION, "4.1", "requests of unknown members are answered", "unknown_members"),
    _scenario(DISSERTATION, "4.1", "the erratum: no change before an entry of the term", "change_before_first_entry"),
    _scenario(DISSERTATION, "4.2.1", "catching up by rounds", "member_catches_up_slowly", "member_added"),
    _scenario(DISSERTATION, "4.2.1", "a slow member is not promoted", "member_catches_up_slowly"),
    _scenario(DISSERTATION, "4.2.1", "a slow member gets no vote on request, either", "changes_refused"),
    _scenario(DISSERTATION, "4.2.1", "an unreachable member is removed", "new_member_unreachable"),
    _scenario(DISSERTATION, "4.2.1", "not for the time in which its leader was suspended", "lone_leader_suspended"),
    _scenario(DISSERTATION, "4.2.2", "the leader is removed", "leader_removed"),
    _scenario(DISSERTATION, "4.2.2", "a leader that is not in its config", "leader_outside_its_config"),
    _scenario(DISSERTATION, "4.2.2", "a leader that its config makes a learner", "leader_made_a_learner"),
    _scenario(DISSERTATION, "4.2.2", "a candidate does not count itself", "candidate_outside_its_config"),
    _scenario(DISSERTATION, "4.2.3", "one that was removed", "removed_server_disturbs_nobody"),
    _scenario(DISSERTATION, "4.2.3", "figure 4.7: its log is whole", "removed_server_with_whole_log"),
    _scenario(DISSERTATION, "4.2.3", "one that was cut off", "partitioned_server", "vote_withheld"),
    _scenario(DISSERTATION, "6.4", "a new leader waits for its first entry", "new_leader_reads", "reads"),
    _scenario(DISSERTATION, "6.4", "a read waits for a round of confirmation", "reads"),
    _scenario(DISSERTATION, "6.4", "reads share a round", "reads_share_a_round"),
    _scenario(DISSERTATION, "6.4", "a confirmed read waits for its store (step 4)", "read_waits_for_apply"),
    _scenario(DISSERTATION, "6.4", "a deposed leader answers no read", "deposed_leader_reads"),
    _scenario(DISSERTATION, "6.4.1", "reads by a lease, and its end", "lease_reads"),
    _scenario(DISSERTATION, "6.4.1", "a lease ends with a handover or a change of config", "lease_ends"),
    _scenario(DISSERTATION, "6.4.1", "a voter restarts and keeps its promise", "promise_after_restart"),
    _scenario(PAPER, "5.2", "a split vote", "split_vote"),
    _scenario(PAPER, "5.3", "a conflicting suffix is replaced", "replaced_suffix"),
    _scenario(PAPER, "5.3", "the point of agreement is found in one step", "jump_back"),
    _scenario(PAPER, "figure 8", "an entry of an older term is not committed by counting", "figure_8"),
    _scenario(TABLET_COPY, "lagging replicas", "a replica below the log's base needs a copy", "needs_a_copy"),
    _scenario(TABLET_COPY, "lagging replicas", "a replica is restored in another way", "restored_elsewhere"),
    _scenario(DURABILITY, "1", "a vote waits for the disk", "torn_ready"),
    _scenario(DURABILITY, "4", "no log is collected that a member needs", "all_replicated"),
    _scenario(DURABILITY, "5", "what was replaced does not come back", "replaced_suffix"),
    _scenario(DURABILITY, "7", "a leader whose disk fails", "failed_disk"),
)
