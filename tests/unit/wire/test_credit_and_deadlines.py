"""Byte credit and the table of deadlines."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from stelae.wire.credit import Credit
from stelae.wire.deadlines import BUCKET_US, Deadlines

WINDOW = 1000


def under_way_bytes(credit: Credit) -> int:
    return credit._sent - credit._freed


@given(st.lists(st.integers(1, 3 * WINDOW), max_size=60), st.randoms(use_true_random=False))
def test_credit_bounds_what_is_under_way_and_never_locks_up(costs: list[int], rng: object) -> None:
    """Whatever the sizes, a receiver that reports only when it is due lets everything through."""
    send, receive = Credit(WINDOW), Credit(WINDOW)
    under_way: list[int] = []
    for cost in costs:
        while not send.take(cost):
            assert under_way, "nothing is under way, and still nothing may go"
            if receive.consume(under_way.pop(0)):
                send.freed(receive.report())
        under_way.append(cost)
        assert under_way_bytes(send) <= max(WINDOW, WINDOW // 4 + cost)


def test_a_repeated_old_or_boastful_report_frees_nothing_more() -> None:
    send = Credit(WINDOW)
    assert send.take(800)
    assert send.freed(500)
    assert not send.freed(500)
    assert not send.freed(300)
    assert under_way_bytes(send) == 300
    assert send.freed(10**12)
    assert under_way_bytes(send) == 0
    assert send.take(900)
    assert under_way_bytes(send) == 900


def test_a_report_is_due_after_a_quarter_of_the_window_and_not_again_at_once() -> None:
    receive = Credit(WINDOW)
    assert not receive.consume(249)
    assert receive.consume(1)
    assert receive.report() == 250
    assert not receive.consume(249)
    assert receive.consume(1)


class Item:
    """Remembers when it was called; ``then`` is what it does to the table at that moment."""

    def __init__(self, came: list[Item]) -> None:
        self.bucket = 0
        self.called_us = -1
        self.then: Callable[[], None] = lambda: None
        self._came = came

    def on_due(self, now_us: int) -> None:
        assert self.bucket == 0
        self.called_us = now_us
        self._came.append(self)
        self.then()


@given(st.lists(st.integers(1, 50 * BUCKET_US), max_size=40), st.sets(st.integers(0, 39)))
def test_deadlines_come_once_in_order_never_early_and_at_most_a_bucket_late(dues: list[int], dropped: set[int]) -> None:
    woken: list[int] = []
    table = Deadlines(woken.append)
    came: list[Item] = []
    items = [Item(came) for _ in dues]
    for item, due in zip(items, dues, strict=True):
        table.set(item, due)
    assert woken == dues
    for number in dropped & set(range(len(dues))):
        table.drop(items[number])
        table.drop(items[number])
    wanted = [n for n in range(len(dues)) if n not in dropped]
    while (next_us := table.next_due_us()) is not None:
        before = len(came)
        table.expire(next_us - 1)
        assert len(came) == before
        table.expire(next_us)
        assert len(came) > before, "woken for nothing"
    for number in wanted:
        assert dues[number] <= items[number].called_us < dues[number] + BUCKET_US + 1
    numbers = [items.index(item) for item in came]
    assert sorted(numbers) == wanted
    assert numbers == sorted(wanted, key=lambda n: (-(-dues[n] // BUCKET_US), n))


def test_a_bucket_that_emptied_can_be_used_again() -> None:
    table = Deadlines(lambda due_us: None)
    came: list[Item] = []
    first, second = Item(came), Item(came)
    table.set(first, BUCKET_US)
    table.drop(first)
    assert table.next_due_us() is None
    table.set(second, BUCKET_US)
    table.expire(BUCKET_US)
    assert came == [second]
    table.drop(second)


def test_an_item_that_is_set_anew_comes_at_its_new_time_only() -> None:
    table = Deadlines(lambda due_us: None)
    came: list[Item] = []
    item = Item(came)
    table.set(item, BUCKET_US)
    table.set(item, 3 * BUCKET_US)
    table.expire(2 * BUCKET_US)
    assert came == []
    table.expire(3 * BUCKET_US)
    assert came == [item]


def test_an_item_may_drop_another_that_is_due_with_it_and_set_itself_anew() -> None:
    table = Deadlines(lambda due_us: None)
    came: list[Item] = []
    first, second = Item(came), Item(came)
    first.then = lambda: (table.drop(second), table.set(first, BUCKET_US))[0]
    for item in (first, second):
        table.set(item, BUCKET_US)
    table.expire(BUCKET_US)
    assert came == [first]
    table.expire(BUCKET_US)
    assert came == [first, first]
