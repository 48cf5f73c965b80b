"""What must happen in the runs in which members change: changes, refusals, changes of role, creations, witnesses."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from stelae.spi.consensus import Role
from stelae_consensus_raft.transitions import TRANSITIONS, Cause
from tests.at_length import AT_LENGTH
from tests.sim.first_seeds import first_seeds, in_order
from tests.sim.floors import OF_MEMBERSHIP, move_name, run_counted

SEEDS = range(1, 101)

OFTEN = {
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
    move_name(Role.LEARNER, Cause.MADE_VOTER),
    move_name(Role.NON_PARTICIPANT, Cause.MADE_LEARNER),
    move_name(Role.FOLLOWER, Cause.MADE_LEARNER),
    move_name(Role.FOLLOWER, Cause.REMOVED),
    move_name(Role.LEARNER, Cause.REMOVED),
}
"""Each of the first seeds shows most of these."""

RARE = {
    "event.Removed",
    "fault.lost_replica",
    "members.refused.no_live_majority",
    "members.refused.not_a_member",
    "members.refused.wrong_member_type",
    "metric.copies_needed",
    "new_replica.cut_short_whole",
    "new_replica.hosted_already",
    "new_replica.of_no_member",
    "new_replica.under_way",
    "witness.became_voter",
    "witness.creation_undone",
    "witness.led_with_rows",
    "witness.newcomer_removed",
    move_name(Role.CANDIDATE, Cause.REMOVED),
    move_name(Role.LEADER, Cause.REMOVED),
    move_name(Role.NON_PARTICIPANT, Cause.MADE_VOTER),
}
"""Looked for in `make soak`."""


def test_members_change_in_every_way_and_no_invariant_is_violated() -> None:
    missing = OFTEN | RARE if AT_LENGTH else set(OFTEN)
    for seed in in_order(first_seeds().members_floors, SEEDS):
        result, names = run_counted(seed, ProfileKind.MEMBERSHIP)
        assert result.violation is None, (seed, result.violation)
        assert result.writes_acknowledged > 0
        missing -= names
        if not missing and not AT_LENGTH:
            break
    assert sorted(missing) == []


def test_the_floors_of_roles_are_cells_of_the_transition_table() -> None:
    cells = {move_name(role, cause) for cause in OF_MEMBERSHIP for role in TRANSITIONS[cause]}
    assert {name for name in OFTEN | RARE if name.startswith("move.")} <= cells
