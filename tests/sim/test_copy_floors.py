"""What must happen in the runs with copies: complete and interrupted ones, refusals, deletions, votes of tombstones."""

from __future__ import annotations

from stelae.sim.profile import ProfileKind
from tests.at_length import AT_LENGTH
from tests.sim.first_seeds import first_seeds, in_order
from tests.sim.floors import never_met
from tests.sim.messages import UNREACHABLE

SEEDS = range(1, 41)
MORE_SEEDS = range(41, 301)
"""For what is rare, as many of these are run as it needs."""

OFTEN = {
    "copies.hosted",
    "copies.rows_reached_log",
    "copies.undone_to_tombstone",
    "copies.voted",
    "deletions.done",
    "deletions.fence_mismatch",
    "fault.leader_in_copy",
    "fault.rows_damaged",
    "fault.stage_damaged",
    "message.copy.ask",
    "message.copy.begin",
    "message.copy.end",
    "message.removed",
    "message.start_copy",
    "message.tablet.config",
    "metric.copies_completed",
    "metric.copies_needed",
    "metric.copies_refused",
    "new_replica.created",
    "node.stage_damaged",
    "start_copy.arrived",
    "start_copy.hosted_already",
    "start_copy.under_way",
    "witness.created",
    "witness.created_over_tombstone",
    "witness.promoted",
}
"""The first seeds show these."""

RARE = {
    "copies.undone",
    "deletions.unavailable",
    "metric.copies_abandoned",
    "metric.copy_sessions_expired",
    "node.rows_damaged_at_start",
    "start_copy.of_no_member",
}
"""Looked for in `make soak`."""


def test_replicas_are_copied_in_every_way_and_no_invariant_is_violated() -> None:
    wanted = OFTEN | RARE if AT_LENGTH else set(OFTEN)
    more = MORE_SEEDS if AT_LENGTH else ()
    seeds = in_order(first_seeds().copies_floors, SEEDS)
    assert never_met(wanted, seeds, ProfileKind.COPIES, more, unreachable=UNREACHABLE) == []
