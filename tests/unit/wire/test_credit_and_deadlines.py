"""Byte credit and the table of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stelae.wire.credit import Credit
from stelae.wire.deadlines import BUCKET_US, Deadlines

WINDOW = 1000


@given(st.lists(st.integers(1, 3 * WINDOW), max_size=60), st.randoms(use_true_random=False))
def test_credit_bounds_what_is_under_way_and_never_locks_up(costs: list[int], rng: object) -> None:
    """Whatever the sizes, a receiver that reports only when it is due lets everything through."""
    send, receive = Credit(WINDOW, 1), Credit(1, WINDOW)
    under_way: list[int] = []
    for cost in costs:
        while not send.take(cost):
            assert under_way, "nothing is under way, and still nothing may go"
            if receive.consume(under_way.pop(0)):
                send.freed(receive.report())
        under_way.append(cost)
        assert send.under_way_bytes <= max(WINDOW, WINDOW // 4 + cost)


def test_a_repeated_old_or_boastful_report_frees_nothing_more() -> None:
    send = Credit(WINDOW, WINDOW)
    assert send.take(800)
    assert send.freed(500)
    assert not send.freed(500)
    assert not send.freed(300)
    assert send.under_way_bytes == 300
    assert send.freed(10**12)
    assert send.under_way_bytes == 0
    assert send.take(900)
    assert send.under_way_bytes == 900


def test_a_report_is_due_after_a_quarter_of_the_window_and_not_again_at_once() -> None:
    receive = Credit(WINDOW, WINDOW)
    assert not receive.consume(249)
    assert receive.consume(1)
    assert receive.report() == 250
    assert not receive.consume(249)
    assert receive.consume(1)


@given(st.lists(st.integers(0, 50 * BUCKET_US), max_size=40), st.sets(st.integers(0, 39)))
def test_deadlines_come_once_in_order_never_early_and_at_most_a_bucket_late(
    dues: list[int], discarded: set[int]
) -> None:
    table: Deadlines[int] = Deadlines()
    buckets = [table.add(due, number) for number, due in enumerate(dues)]
    for number in discarded & set(range(len(dues))):
        table.discard(buckets[number], number)
        table.discard(buckets[number], number)
    wanted = set(range(len(dues))) - discarded
    came: list[int] = []
    while (next_us := table.next_due_us()) is not None:
        assert table.pop_due(next_us - 1) == []
        popped = table.pop_due(next_us)
        assert popped, "woken for nothing"
        for number in popped:
            assert dues[number] <= next_us < dues[number] + BUCKET_US + 1
        came.extend(popped)
    assert sorted(came) == sorted(wanted)
    assert [-(-dues[n] // BUCKET_US) for n in came] == sorted(
        -(-dues[n] // BUCKET_US) for n in came
    )


def test_a_bucket_that_emptied_can_be_used_again() -> None:
    table: Deadlines[str] = Deadlines()
    table.discard(table.add(BUCKET_US, "first"), "first")
    assert table.next_due_us() is None
    table.add(BUCKET_US, "second")
    assert table.pop_due(BUCKET_US) == ["second"]
    table.discard(1, "second")
