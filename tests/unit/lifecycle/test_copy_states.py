"""The states of a copy: every sequence of outcomes ends, in a tombstone or in a replica, and in nothing between."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import pytest

from stelae.lifecycle.copy_states import (
    AFTER_MARKING,
    BEFORE_EFFECTS,
    CANCELLABLE,
    FETCHES_FIRST,
    LAST,
    PHASES,
    CopyPhase,
    CopySequence,
    CopyState,
    CopyStepOutcome,
)

ROUNDS = 2
S, Out = CopyState, CopyStepOutcome


def frozen(progress: CopySequence) -> tuple[object, ...]:
    return dataclasses.astuple(progress)


def beginnings() -> list[CopySequence]:
    """Copies for a node without a replica, with one that lags, and with one that is damaged."""
    kinds = ((False, False), (True, False), (True, True))
    return [CopySequence(replaces=replaces, rounds=ROUNDS, fetches_first=first) for replaces, first in kinds]


def everything() -> Iterator[tuple[CopySequence, CopyStepOutcome, CopySequence]]:
    """Every step that any sequence of outcomes can lead to."""
    begun = beginnings()
    seen = {frozen(progress) for progress in begun}
    while begun:
        before = begun.pop()
        if before.state is S.ENDED:
            continue
        for outcome in CopyStepOutcome:
            after = dataclasses.replace(before)
            after.step(outcome)
            yield before, outcome, after
            if frozen(after) not in seen:
                seen.add(frozen(after))
                begun.append(after)


STEPS = list(everything())
OTHERS = [step for step in STEPS if not step[0].fetches_first]
OF_DAMAGED = [step for step in STEPS if step[0].fetches_first]


def test_every_state_is_reached_and_every_row_of_the_tables_is_used() -> None:
    assert {after.state for _, _, after in STEPS} == set(CopyState) - {S.CHECKING}
    assert {after.state for _, _, after in OF_DAMAGED} == set(CopyState) - {S.CHECKING}
    for table, steps, marked in (
        (BEFORE_EFFECTS, OTHERS, False),
        (FETCHES_FIRST, OF_DAMAGED, False),
        (AFTER_MARKING, OTHERS, True),
    ):
        used = {(before.state, outcome) for before, outcome, _ in steps if before.marked is marked}
        assert set(table) <= used, set(table) - used


def test_every_sequence_of_outcomes_ends() -> None:
    """Rounds only fall, and within one round no state comes twice."""
    following: dict[tuple[object, ...], set[tuple[object, ...]]] = {}
    for before, _, after in STEPS:
        following.setdefault(frozen(before), set()).add(frozen(after))
    longest: dict[tuple[object, ...], int] = {}

    def length(of: tuple[object, ...], path: tuple[tuple[object, ...], ...]) -> int:
        assert of not in path, f"a loop at {of}"
        if of not in longest:
            longest[of] = 1 + max((length(after, (*path, of)) for after in following.get(of, ())), default=0)
        return longest[of]

    assert max(length(frozen(begun), ()) for begun in beginnings()) < 60


def test_what_is_marked_is_abandoned_or_committed_before_it_ends() -> None:
    for before, outcome, after in STEPS:
        if after.state is S.ENDED and after.marked and not after.committed:
            uncertain = before.state is S.COMMITTING and outcome is not Out.FULL
            assert before.state is S.ABANDONING or uncertain, (before, outcome)


def test_nothing_is_committed_that_was_not_verified_installed_and_merged_since_the_last_fetch() -> None:
    """Rules 18, 21 and 22: the way to READY has no other entrance."""
    ways = ways_of(OTHERS)
    assert ways[S.HOSTING] == {(S.COMMITTING, Out.DONE)}
    assert ways[S.COMMITTING] == {(S.MERGING, Out.DONE)}
    assert ways[S.MERGING] == {(S.INSTALLING_ROWS, Out.DONE)}
    assert ways[S.INSTALLING_ROWS] == {(S.INSTALLING_LOG, Out.DONE)}
    assert ways[S.INSTALLING_LOG] == {(S.VERIFYING, Out.DONE)}
    assert ways[S.VERIFYING] == {(S.FETCHING, Out.DONE)}
    assert ways[S.FETCHING] == {(S.STAGING, Out.DONE), (S.VERIFYING, Out.DAMAGED)}
    assert ways[S.STAGING] == {(S.MARKING, Out.DONE), (S.FENCING, Out.DONE)}
    damaged = ways_of(OF_DAMAGED)
    for state in (S.HOSTING, S.COMMITTING, S.MERGING, S.INSTALLING_ROWS, S.VERIFYING, S.FETCHING):
        assert damaged[state] == ways[state]
    assert damaged[S.INSTALLING_LOG] == {(S.MARKING, Out.DONE)}
    assert damaged[S.MARKING] == {(S.SETTING_ASIDE, Out.DONE)}
    assert damaged[S.SETTING_ASIDE] == {(S.VERIFYING, Out.DONE)}, "its rows may be the last good ones"
    assert damaged[S.STAGING] == {(S.FENCING, Out.DONE)}


def ways_of(
    steps: list[tuple[CopySequence, CopyStepOutcome, CopySequence]],
) -> dict[CopyState, set[tuple[CopyState, CopyStepOutcome]]]:
    """The states and outcomes that lead to each state."""
    ways: dict[CopyState, set[tuple[CopyState, CopyStepOutcome]]] = {}
    for before, outcome, after in steps:
        ways.setdefault(after.state, set()).add((before.state, outcome))
    return ways


def test_guards_and_fences_come_before_the_first_effect_and_fences_after_each_change_of_the_source() -> None:
    """Rules 17 and 18."""
    effects = {S.SETTING_ASIDE, S.MARKING}
    for before, outcome, after in STEPS:
        if after.state in effects and not before.fetches_first:
            assert (before.state, outcome) in {(S.FENCING, Out.DONE), (S.SETTING_ASIDE, Out.DONE)}
        if before.state is S.OPENING and outcome is Out.DONE:
            assert after.state is S.FENCING


def test_a_refusal_before_the_first_effect_ends_the_copy_without_one() -> None:
    for before, outcome, after in STEPS:
        if not before.marked and outcome is not Out.DONE and before.state not in (S.SETTING_ASIDE, S.MARKING):
            again = before.fetches_first and (before.state, outcome) == (S.VERIFYING, Out.DAMAGED)
            assert after.state in (S.OPENING, S.ENDED, *[S.FETCHING] * again) and not after.marked


def test_a_replica_that_could_not_be_set_aside_starts_again() -> None:
    found = {after.state for before, outcome, after in STEPS if before.state is S.SETTING_ASIDE and outcome is Out.FULL}
    assert found == {S.REHOSTING}


def test_a_cancellation_ends_what_is_not_committed_and_nothing_else() -> None:
    for before, outcome, after in STEPS:
        if outcome is Out.CANCELLED and before.state in CANCELLABLE:
            assert after.state is (S.ABANDONING if before.marked else S.ENDED), before
    assert frozenset(CopyState) - {S.REHOSTING, S.ENDED} - LAST == CANCELLABLE


def test_a_full_disk_gets_its_space_back() -> None:
    for before, outcome, after in STEPS:
        if outcome is Out.FULL and before.state in (S.STAGING, S.FETCHING, S.INSTALLING_LOG, S.INSTALLING_ROWS):
            if before.marked or not before.fetches_first:
                assert after.state is S.ABANDONING and after.drops_stage
            else:
                assert after.state is S.ENDED, "the limits of stages free the space"


@pytest.mark.parametrize("outcome", [Out.INTERRUPTED, Out.REFUSED, Out.DAMAGED])
def test_a_lost_source_is_asked_again_or_replaced_as_long_as_there_are_rounds(outcome: CopyStepOutcome) -> None:
    progress = CopySequence(replaces=False, rounds=ROUNDS)
    for done in itertools.repeat(Out.DONE, 6):
        if progress.state is not S.FETCHING:
            progress.step(done)
    for _ in range(ROUNDS):
        assert progress.step(outcome) is S.OPENING
        assert [progress.step(Out.DONE) for _ in range(3)] == [S.FENCING, S.STAGING, S.FETCHING]
    assert progress.step(outcome) is S.ABANDONING and not progress.drops_stage


def test_items_that_stay_damaged_are_not_fetched_for_ever() -> None:
    progress = CopySequence(replaces=False, rounds=1, state=S.VERIFYING, marked=True)
    assert progress.step(Out.DAMAGED) is S.FETCHING and progress.step(Out.DONE) is S.VERIFYING
    assert progress.step(Out.DAMAGED) is S.ABANDONING and progress.drops_stage


def test_every_state_has_a_phase_and_a_damaged_replica_is_set_aside_to_install_its_copy() -> None:
    assert set(PHASES) == set(CopyState)
    for first, phase in ((False, CopyPhase.PREPARING), (True, CopyPhase.INSTALLING)):
        for state in (CopyState.SETTING_ASIDE, CopyState.MARKING):
            assert CopySequence(replaces=True, rounds=0, fetches_first=first, state=state).phase is phase
