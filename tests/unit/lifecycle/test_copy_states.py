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
    LAST,
    CopySequence,
    CopyState,
    Outcome,
)

ROUNDS = 2
S, Out = CopyState, Outcome


def frozen(progress: CopySequence) -> tuple[object, ...]:
    return dataclasses.astuple(progress)


def everything() -> Iterator[tuple[CopySequence, Outcome, CopySequence]]:
    """Every step that any sequence of outcomes can lead to."""
    begun = [CopySequence(replaces=replaces, rounds=ROUNDS) for replaces in (True, False)]
    seen = {frozen(progress) for progress in begun}
    while begun:
        before = begun.pop()
        if before.state is S.ENDED:
            continue
        for outcome in Outcome:
            after = dataclasses.replace(before)
            after.step(outcome)
            yield before, outcome, after
            if frozen(after) not in seen:
                seen.add(frozen(after))
                begun.append(after)


STEPS = list(everything())


def test_every_state_is_reached_and_every_row_of_the_tables_is_used() -> None:
    assert {after.state for _, _, after in STEPS} == set(CopyState) - {S.CHECKING}
    for table, marked in ((BEFORE_EFFECTS, False), (AFTER_MARKING, True)):
        used = {(before.state, outcome) for before, outcome, _ in STEPS if before.marked is marked}
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

    assert max(length(frozen(CopySequence(replaces=r, rounds=ROUNDS)), ()) for r in (True, False)) < 60


def test_what_is_marked_is_abandoned_or_committed_before_it_ends() -> None:
    for before, outcome, after in STEPS:
        if after.state is S.ENDED and after.marked and not after.committed:
            uncertain = before.state is S.COMMITTING and outcome is not Out.FULL
            assert before.state is S.ABANDONING or uncertain, (before, outcome)


def test_nothing_is_committed_that_was_not_verified_installed_and_merged_since_the_last_fetch() -> None:
    """Rules 18, 21 and 22: the way to READY has no other entrance."""
    ways = {after.state: set() for _, _, after in STEPS}  # type: ignore[var-annotated]
    for before, outcome, after in STEPS:
        ways[after.state].add((before.state, outcome))
    assert ways[S.HOSTING] == {(S.COMMITTING, Out.DONE)}
    assert ways[S.COMMITTING] == {(S.MERGING, Out.DONE)}
    assert ways[S.MERGING] == {(S.INSTALLING_ROWS, Out.DONE)}
    assert ways[S.INSTALLING_ROWS] == {(S.INSTALLING_LOG, Out.DONE)}
    assert ways[S.INSTALLING_LOG] == {(S.VERIFYING, Out.DONE)}
    assert ways[S.VERIFYING] == {(S.FETCHING, Out.DONE)}
    assert ways[S.FETCHING] == {(S.STAGING, Out.DONE), (S.VERIFYING, Out.DAMAGED)}
    assert ways[S.STAGING] == {(S.MARKING, Out.DONE), (S.FENCING, Out.DONE)}


def test_guards_and_fences_come_before_the_first_effect_and_fences_after_each_change_of_the_source() -> None:
    """Rules 17 and 18."""
    effects = {S.SETTING_ASIDE, S.MARKING}
    for before, outcome, after in STEPS:
        if after.state in effects:
            assert (before.state, outcome) in {(S.FENCING, Out.DONE), (S.SETTING_ASIDE, Out.DONE)}
        if before.state is S.OPENING and outcome is Out.DONE:
            assert after.state is S.FENCING


def test_a_refusal_before_the_first_effect_ends_the_copy_without_one() -> None:
    for before, outcome, after in STEPS:
        if not before.marked and outcome is not Out.DONE and before.state not in (S.SETTING_ASIDE, S.MARKING):
            assert after.state in (S.OPENING, S.ENDED) and not after.marked


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
            assert after.state is S.ABANDONING and after.drops_stage


@pytest.mark.parametrize("outcome", [Out.INTERRUPTED, Out.REFUSED, Out.DAMAGED])
def test_a_lost_source_is_asked_again_or_replaced_as_long_as_there_are_rounds(outcome: Outcome) -> None:
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
