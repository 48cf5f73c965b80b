"""What must happen in the runs in which members change: changes, refusals, changes of role, creations, witnesses."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from stelae.spi.consensus import Role
from stelae.spi.rejections import RejectReason
from stelae_consensus_raft.transitions import TRANSITIONS, Cause
from tests.at_length import AT_LENGTH
from tests.sim.first_seeds import first_seeds, in_order
from tests.sim.floors import MOVES, move_name, never_met
from tests.sim.floors import RARE as RARE_MOVES
from tests.sim.messages import UNREACHABLE as UNREACHABLE_MESSAGES

SEEDS = range(1, 101)

MORE_SEEDS = range(101, 401)
"""One run in fifty shows the rarest event, so none of the first hundred may."""

OFTEN = {
    "change.CANNOT_ABORT",
    "change.CHANGE_PENDING",
    "change.CONFIGURING",
    "change.LEADERSHIP_LOST",
    "change.NOT_CAUGHT_UP",
    "change.NO_CHANGE",
    "change.ROWS_MISSING",
    "change.STEPPING_DOWN",
    "change.TRANSFERRING",
    "change.WRONG_CONFIG_ID",
    "change.WRONG_MEMBER_TYPE",
    "event.AbortChange",
    "event.ChangeMembers",
    "members.before_serving",
    "members.done.addserver",
    "members.done.changerole",
    "members.done.removeserver",
    "members.error.not_leader",
    "members.error.unavailable",
    "members.not_aborted",
    "members.refused.change_pending",
    "members.refused.no_change",
    "members.refused.not_caught_up",
    "members.refused.rows_missing",
    "members.refused.wrong_config_id",
    "members.stepping_down",
    "message.CancelCopy",
    "message.new_replica",
    "new_replica.arrived",
    "new_replica.crash_planned",
    "new_replica.created",
    "new_replica.cut_short_nothing",
    "ready.config_changes",
    "ready.copy_requests",
    "scan.no_rows",
    "witness.created",
    "witness.demoted_voter_returned",
    "witness.handed_over",
    "witness.led",
    "witness.promoted",
    "witness.removed",
    "fault.alone_with_witness",
    move_name(Role.FOLLOWER, Cause.MADE_VOTER),
    move_name(Role.LEARNER, Cause.HIGHER_TERM),
    move_name(Role.LEARNER, Cause.LEADER_HEARD),
    move_name(Role.LEARNER, Cause.MADE_LEARNER),
    move_name(Role.LEARNER, Cause.MADE_VOTER),
    move_name(Role.NON_PARTICIPANT, Cause.HIGHER_TERM),
    move_name(Role.NON_PARTICIPANT, Cause.LEADER_HEARD),
    move_name(Role.NON_PARTICIPANT, Cause.MADE_LEARNER),
    move_name(Role.FOLLOWER, Cause.MADE_LEARNER),
    move_name(Role.FOLLOWER, Cause.REMOVED),
    move_name(Role.LEARNER, Cause.REMOVED),
    move_name(Role.NON_PARTICIPANT, Cause.REMOVED),
}
"""Each of the first seeds shows most of these."""

RARE = {
    "change.ABORTED",
    "change.NOT_A_MEMBER",
    "change.NOT_LEADER",
    "change.NOT_TAKEN_OVER",
    "change.NO_LIVE_MAJORITY",
    "change.NO_SUCCESSOR",
    "event.Removed",
    "fault.lost_replica",
    "members.aborted",
    "members.refused.aborted",
    "members.refused.no_live_majority",
    "members.refused.not_a_member",
    "members.refused.wrong_member_type",
    "metric.copies_needed",
    "new_replica.cut_short_whole",
    "new_replica.hosted_already",
    "new_replica.of_no_member",
    "new_replica.under_way",
    "ready.aborted",
    "witness.became_voter",
    "witness.creation_undone",
    "witness.newcomer_removed",
    move_name(Role.CANDIDATE, Cause.REMOVED),
    move_name(Role.LEADER, Cause.MADE_LEARNER),
    move_name(Role.LEARNER, Cause.PERSIST_FAILED),
    move_name(Role.NON_PARTICIPANT, Cause.MADE_VOTER),
}
"""Looked for in `make soak`."""

_FOLLOWS_FIRST = "a candidate follows the leader that sends the config before the config takes effect"
_FAILS_RARELY = "a write must fail on a replica that is no member; test_transitions.py has the cell"
_WINS_BEFORE_COMMIT = (
    "a voter must win an election between the append of its removal or demotion and the commit, with the entry in its "
    "log and in no other voter's; leader_outside_its_config.trace has the removal"
)

UNREACHABLE = {
    "change.LEADERLESS": "voters remain in each change that is drawn (member_drawing.VOTERS_MIN)",
    move_name(Role.CANDIDATE, Cause.MADE_VOTER): _FOLLOWS_FIRST,
    move_name(Role.CANDIDATE, Cause.MADE_LEARNER): _FOLLOWS_FIRST,
    "witness.led_with_rows": "a leader promotes a witness as soon as it has its rows, so the witness would have to win "
    "an election before; witness_leads_with_rows.trace has it",
    move_name(Role.LEADER, Cause.REMOVED): _WINS_BEFORE_COMMIT,
    move_name(Role.LEADER, Cause.STEP_DOWN): "used for an orderly stop of a replica, which runs do not have; "
    "test_transitions.py has the cell",
    move_name(Role.NON_PARTICIPANT, Cause.PERSIST_FAILED): _FAILS_RARELY,
    **UNREACHABLE_MESSAGES,
}
"""What no run is expected to show, with the reason, and the test that shows it. A run that shows one fails the test."""

OF_OTHER_REQUESTS = {
    RejectReason.OVERLOADED,
    RejectReason.TOO_LARGE,
    RejectReason.UNSUPPORTED,
    RejectReason.NOT_A_VOTER,
    RejectReason.LEADER_ALIVE,
    RejectReason.CHANGED_SINCE,
    RejectReason.STOOD_DOWN,
    RejectReason.RECOVERED,
}
"""Reasons for which no change of config is rejected."""


def test_members_change_in_every_way_and_no_invariant_is_violated() -> None:
    wanted = OFTEN | RARE if AT_LENGTH else set(OFTEN)
    seeds = in_order(first_seeds().members_floors, SEEDS)
    more = MORE_SEEDS if AT_LENGTH else ()
    assert never_met(wanted, seeds, ProfileKind.MEMBERSHIP, more, UNREACHABLE) == []


def test_every_refusal_of_a_change_and_every_cell_of_the_transition_table_has_a_floor_or_a_reason() -> None:
    known = OFTEN | RARE | set(UNREACHABLE)
    assert not (OFTEN | RARE) & set(UNREACHABLE)
    assert {f"change.{reason}" for reason in RejectReason if reason not in OF_OTHER_REQUESTS} - known == set()
    of_fixed_members = MOVES | {move_name(role, cause) for role, cause in RARE_MOVES}
    cells = {move_name(role, cause) for cause, row in TRANSITIONS.items() for role in row if row[role] is not None}
    assert cells - known - of_fixed_members == set()


def test_the_floors_of_roles_are_cells_of_the_transition_table() -> None:
    cells = {move_name(role, cause) for cause in TRANSITIONS for role in TRANSITIONS[cause]}
    assert {name for name in OFTEN | RARE if name.startswith("move.")} <= cells
