"""The checker of linearizability accepts the histories that a register can have, and refuses all others."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.sim.history import ClientAction
from stelae.sim.linearizability_checker import LinearStep, OrderVerdict, TimedCall, check
from tests.at_length import times

UPSERT, INSERT, UPDATE, DELETE, READ = (
    ClientAction.UPSERT,
    ClientAction.INSERT,
    ClientAction.UPDATE,
    ClientAction.DELETE,
    ClientAction.READ,
)
PRESENT, MISSING = "ALREADY_PRESENT", "NOT_FOUND"


def call(begin: int, end: int | None, *steps: LinearStep, name: str = "") -> TimedCall:
    return TimedCall(name=name or f"from {begin}", invoked=begin, answered=end, steps=steps)


def write(
    begin: int, end: int | None, value: str, action: ClientAction = UPSERT, error: str | None = None
) -> TimedCall:
    return call(begin, end, LinearStep(action, value, error))


def read(begin: int, end: int, value: str | None) -> TimedCall:
    return call(begin, end, LinearStep(READ, value))


def verdict(*calls: TimedCall) -> OrderVerdict:
    return check(calls).verdict


def accepted(*calls: TimedCall) -> bool:
    return verdict(*calls) is OrderVerdict.LINEARIZABLE


def refused(*calls: TimedCall) -> bool:
    return verdict(*calls) is OrderVerdict.IMPOSSIBLE


# -- histories that no register can have ----------------------------------------------------------


def test_a_stale_read_after_an_answered_write_is_refused() -> None:
    assert refused(write(1, 2, "a"), write(3, 4, "b"), read(5, 6, "a"))


def test_two_readers_who_see_concurrent_writes_in_opposite_orders_are_refused() -> None:
    """Each read alone is possible; both together are not (Herlihy and Wing, section 2)."""
    writes = (write(1, 20, "a"), write(2, 21, "b"))
    assert accepted(*writes, read(3, 4, "a"), read(5, 6, "b"))
    assert refused(*writes, read(3, 4, "a"), read(5, 6, "b"), read(7, 8, "a"))


def test_a_value_that_was_never_written_is_refused() -> None:
    assert refused(write(1, 2, "a"), read(3, 4, "z"))


def test_a_read_of_a_value_that_is_written_later_is_refused() -> None:
    assert refused(read(1, 2, "a"), write(3, 4, "a"))


def test_two_inserts_of_one_key_cannot_both_succeed() -> None:
    assert refused(write(1, 4, "a", INSERT), write(2, 5, "b", INSERT))
    assert accepted(write(1, 4, "a", INSERT), write(2, 5, "b", INSERT, PRESENT))


def test_after_a_delete_that_succeeded_there_is_no_row() -> None:
    assert refused(write(1, 2, "a"), call(3, 4, LinearStep(DELETE)), read(5, 6, "a"))
    assert refused(write(1, 2, "a"), call(3, 4, LinearStep(DELETE)), write(5, 6, "b", UPDATE))
    assert refused(call(1, 2, LinearStep(DELETE)))
    assert accepted(call(1, 2, LinearStep(DELETE, None, MISSING)))


def test_an_error_that_does_not_fit_the_state_is_refused() -> None:
    assert refused(write(1, 2, "a"), write(3, 4, "b", UPDATE, MISSING))
    assert refused(write(1, 2, "a", UPSERT, PRESENT))
    assert refused(write(1, 2, "a", INSERT, MISSING))


def test_the_operations_that_do_not_fit_are_named() -> None:
    finding = check([write(1, 2, "a"), call(3, 4, LinearStep(READ, "z"), name="the reader")])
    assert finding.stuck == ("the reader",)


# -- histories that a register can have -----------------------------------------------------------


def test_a_write_of_unknown_outcome_may_be_seen_later_or_never() -> None:
    lost = write(1, None, "lost")
    assert accepted(lost, write(2, 3, "a"), read(4, 5, "a"))
    assert accepted(lost, write(2, 3, "a"), read(4, 5, "lost"), read(6, 7, "lost"))
    assert refused(lost, write(2, 3, "a"), read(4, 5, "lost"), read(6, 7, "a"))


def test_a_write_of_unknown_outcome_has_no_effect_before_it_began() -> None:
    assert refused(read(1, 2, "late"), write(3, None, "late"))
    assert accepted(read(1, 4, "late"), write(3, None, "late"))


def test_an_update_of_unknown_outcome_may_have_found_no_row() -> None:
    assert accepted(write(1, None, "u", UPDATE), write(2, 3, "a", INSERT), read(4, 5, "a"))
    assert refused(write(1, None, "u", UPDATE), read(2, 3, "u"))


def test_several_rows_of_one_operation_are_one_step() -> None:
    both = call(1, 6, LinearStep(INSERT, "a"), LinearStep(INSERT, "b", PRESENT))
    assert accepted(both, read(2, 3, None), read(4, 5, "a"))
    twice = call(1, 6, LinearStep(UPSERT, "a"), LinearStep(UPSERT, "b"))
    assert refused(twice, read(2, 3, "a"))


def test_a_write_that_repeats_the_present_value_may_be_needed_later() -> None:
    """In the first history the second upsert fits at once, but only it can restore "c" after the update."""
    assert accepted(write(0, 6, "a", UPDATE), write(1, 8, "c"), write(4, 7, "c"), read(5, 9, None), read(10, 11, "c"))
    assert accepted(write(1, 2, "a"), write(3, 8, "a"), write(4, 5, "b"), read(9, 10, "a"))
    assert refused(write(1, 2, "a"), write(3, 4, "a"), write(5, 6, "b"), read(7, 8, "a"))


def test_a_search_that_is_too_long_is_undecided_and_not_accepted() -> None:
    many = [write(n, 1_000 + n, f"v{n}") for n in range(14)]
    finding = check([*many, read(2_000, 2_001, "never")], tried_max=500)
    assert (finding.verdict, finding.tried) == (OrderVerdict.UNDECIDED, 500)


def test_a_long_history_of_few_clients_takes_about_as_many_states_as_operations() -> None:
    calls = []
    for n in range(0, 1_200, 4):
        calls += [write(n, n + 3, f"v{n}"), read(n + 1, n + 2, f"v{n}")]
    calls += [write(n, None, f"lost{n}") for n in range(2, 1_200, 100)]
    finding = check(calls)
    assert finding.verdict is OrderVerdict.LINEARIZABLE
    assert finding.tried < 2 * len(calls)


# -- against brute force --------------------------------------------------------------------------


def play(order: tuple[TimedCall, ...]) -> bool:
    """Carry out operations in an order, by the contract, one row after the other. Return whether the answers fit."""
    row: str | None = None
    for done in order:
        for step in done.steps:
            match step.action:
                case ClientAction.READ:
                    if row != step.value:
                        return False
                    continue
                case ClientAction.INSERT:
                    error = PRESENT if row is not None else None
                case ClientAction.UPDATE | ClientAction.DELETE:
                    error = MISSING if row is None else None
                case _:
                    error = None
            if done.answered is not None and step.error != error:
                return False
            if error is None:
                row = None if step.action is DELETE else step.value
    return True


def brute_force(calls: list[TimedCall]) -> bool:
    """Try every order that agrees with real time, and every choice of unknown operations that took effect."""
    known = [c for c in calls if c.answered is not None]
    unknown = [c for c in calls if c.answered is None]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *chosen]):
                ordered = all(
                    not (later.answered is not None and later.answered < earlier.invoked)
                    for earlier, later in itertools.combinations(order, 2)
                )
                if ordered and play(order):
                    return True
    return False


@st.composite
def histories(draw: st.DrawFn) -> list[TimedCall]:
    """Up to six operations at drawn times, with answers that may or may not fit."""
    count = draw(st.integers(1, 6))
    times = draw(st.permutations(range(2 * count)))
    calls = []
    for n in range(count):
        begin, end = sorted(times[2 * n : 2 * n + 2])
        action = draw(st.sampled_from([UPSERT, INSERT, UPDATE, DELETE, READ, READ]))
        values = st.sampled_from([None, "a", "b", "c"]) if action is READ else st.sampled_from(["a", "b", "c"])
        error = {INSERT: PRESENT, UPDATE: MISSING, DELETE: MISSING}.get(action)
        steps = [
            LinearStep(action, draw(values), error if draw(st.booleans()) else None)
            for _ in range(1 if action is READ else draw(st.integers(1, 2)))
        ]
        unknown = action is not READ and draw(st.integers(0, 3)) == 0
        calls.append(call(begin, None if unknown else end, *steps))
    return calls


@settings(max_examples=times(600), deadline=None)
@given(histories())
def test_the_verdict_is_that_of_brute_force(calls: list[TimedCall]) -> None:
    assert accepted(*calls) == brute_force(calls)
