"""The table of role changes is total, and the core obeys it."""

from __future__ import annotations

from typing import get_args

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Campaign, Event, StepDown, Tick
from stelae_consensus_raft import TRANSITIONS, Cause
from tests.unit.consensus_raft.solo import T_US, Solo


def test_every_cause_has_a_target_or_is_ignored_for_every_role() -> None:
    assert set(TRANSITIONS) == set(Cause)
    for row in TRANSITIONS.values():
        assert set(row) == set(Role)


def test_only_votes_make_a_leader_and_only_a_campaign_a_candidate() -> None:
    for cause, row in TRANSITIONS.items():
        for before, after in row.items():
            if after is Role.LEADER and before is not Role.LEADER:
                assert (cause, before) == (Cause.VOTES_WON, Role.CANDIDATE)
            if after is Role.CANDIDATE and before is not Role.CANDIDATE:
                assert cause in (Cause.TIMEOUT, Cause.TRANSFER) and before is Role.FOLLOWER


def test_every_event_of_the_contract_has_a_handler() -> None:
    handlers = Solo().core._handlers
    assert set(handlers) == set(get_args(Event))


def test_transitions_are_counted_by_role_and_cause() -> None:
    solo = Solo().serve()
    solo.step(StepDown())
    assert solo.core.transitions[Role.FOLLOWER, Cause.TIMEOUT] == 1
    assert solo.core.transitions[Role.CANDIDATE, Cause.VOTES_WON] == 1
    assert solo.core.transitions[Role.LEADER, Cause.STEP_DOWN] == 1


def test_a_broken_invariant_carries_the_history_of_transitions() -> None:
    solo = Solo().serve()
    solo.step(Tick(T_US))
    (ready,) = solo.step(Tick(0))
    assert ready.fatal is not None and "time went back" in ready.fatal.reason
    assert "FOLLOWER -> CANDIDATE (TIMEOUT)" in ready.fatal.history[0]
    assert solo.step(Campaign(hinted=False)) == []
