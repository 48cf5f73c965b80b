"""The table of role changes is total, and the core obeys it."""

from __future__ import annotations

from typing import get_args

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Campaign, Event, PersistFailed, StepDown, Tick
from stelae.spi.ids import OpId
from stelae_consensus_raft import TRANSITIONS, Cause
from tests.unit.consensus_raft.solo import T_US, A, B, Solo, entries, members


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


def test_a_leader_that_is_asked_to_step_down_follows_in_the_same_term() -> None:
    solo = Solo().serve()
    before = solo.core.status()
    solo.step(StepDown())
    after = solo.core.status()
    assert (before.role, after.role, after.term) == (Role.LEADER, Role.FOLLOWER, before.term)
    assert solo.core.transitions[Role.LEADER, Cause.STEP_DOWN] == 1


def test_a_write_that_fails_on_a_replica_that_is_no_member_leaves_it_outside() -> None:
    solo = Solo(config=members(A, B, op_id=OpId(1, 1)), commit=1)
    solo.holds = True
    solo.append(1, OpId(1, 1), *entries(2, 1, 1))
    assert solo.core.status().role is Role.NON_PARTICIPANT
    solo.step(PersistFailed(solo.readies[-1].id, 2))
    status = solo.core.status()
    assert (status.role, status.last, solo.core.next_deadline()) == (Role.NON_PARTICIPANT, OpId(1, 2), None)
    assert solo.core.transitions[Role.NON_PARTICIPANT, Cause.PERSIST_FAILED] == 1


def test_a_broken_invariant_carries_the_history_of_transitions() -> None:
    solo = Solo().serve()
    solo.step(Tick(T_US))
    (ready,) = solo.step(Tick(0))
    assert ready.fatal is not None and "time went back" in ready.fatal.reason
    assert "FOLLOWER -> CANDIDATE (TIMEOUT)" in ready.fatal.history[0]
    assert solo.step(Campaign(hinted=False)) == []
