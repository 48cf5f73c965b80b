"""Pages that are read ahead: one cursor for a scan, whoever asks; and when it is let go."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from stelae.protocol.codec import decode
from stelae.protocol.tablet_messages import ScanPage
from stelae.server.tserver import scan_pages
from stelae.server.tserver.open_scans import KEEP_US, KEPT_MAX
from stelae.spi.errors import TooOld
from stelae.spi.ids import NodeId, OpId
from stelae.spi.scan import Compare, Order, ScanSpec
from stelae.spi.store import ApplyEntry, Cursor
from tests.unit.tserver.scan_world import AT, OTHER, SCHEMA, Store, World


@pytest.mark.parametrize(
    "spec",
    [ScanSpec(), ScanSpec(order=Order.KEY_DESCENDING), ScanSpec(limit=8), ScanSpec(predicates=(Compare(1, ">", 2),))],
)
def test_a_scan_of_many_pages_opens_one_cursor_and_closes_it_at_the_end(spec: ScanSpec) -> None:
    world = World()
    kept = range(3, 10) if spec.predicates else range(8) if spec.limit else range(10)
    keys = world.scan(spec)
    assert keys == (sorted(kept, reverse=True) if spec.order is Order.KEY_DESCENDING else [*kept])
    assert (world.store.opened, world.store.open) == (1, set())


def test_the_next_page_is_read_before_it_is_asked_for_and_answered_at_once() -> None:
    world = World()
    found, _ = world.page(ScanSpec())
    assert world.work == []
    world.ask(ScanSpec(after=found.after))
    assert len(world.answers) == 1


def test_a_page_that_is_asked_for_while_it_is_read_is_answered_when_it_was() -> None:
    world = World()
    world.ask(ScanSpec())
    work, done = world.work.pop()
    done(work())
    found = decode(world.answers.pop()[0], ScanPage)
    world.ask(ScanSpec(after=found.after))
    assert world.answers == []
    world.run_pool()
    assert decode(world.answers.pop()[0], ScanPage).row_count == 3
    assert world.store.opened == 1


@pytest.mark.parametrize(
    "fields", [{"sender": OTHER}, {"rows_max": 2}, {"store": Store(10)}], ids=["sender", "rows", "store"]
)
def test_what_asks_for_something_else_gets_a_cursor_of_its_own(fields: dict[str, Any]) -> None:
    world = World()
    found, _ = world.page(ScanSpec())
    _, keys = world.page(ScanSpec(after=found.after), **fields)
    assert keys == [3, 4, 5][: fields.get("rows_max", 3)]
    assert world.store.opened + (fields["store"].opened if "store" in fields else 0) == 2


def test_a_page_that_is_asked_for_again_is_the_same() -> None:
    """An answer that was lost on the way."""
    world = World()
    found, _ = world.page(ScanSpec())
    again = ScanSpec(after=found.after)
    assert world.page(again) == world.page(again)


def test_a_cursor_that_nobody_comes_back_for_is_let_go_and_the_scan_goes_on_all_the_same() -> None:
    world = World()
    found, _ = world.page(ScanSpec())
    world.pass_us(KEEP_US - 1)
    assert len(world.store.open) == 1
    world.pass_us(1)
    assert world.store.open == set()
    assert world.page(ScanSpec(after=found.after))[1] == [3, 4, 5]
    assert world.store.opened == 2


def test_a_cursor_that_is_in_use_while_its_time_is_up_is_let_go_when_it_is_not() -> None:
    world = World()
    world.ask(ScanSpec())
    work, done = world.work.pop()
    done(work())
    world.pass_us(KEEP_US)
    assert len(world.store.open) == 1, "a thread is in it"
    world.run_pool()
    assert world.store.open == set()


def test_no_more_cursors_wait_than_may_and_the_oldest_one_goes() -> None:
    world = World()
    first, _ = world.page(ScanSpec(), sender=NodeId("0"))
    for number in range(1, KEPT_MAX + 1):
        world.page(ScanSpec(), sender=NodeId(str(number)))
    assert len(world.store.open) == KEPT_MAX
    opened = world.store.opened
    world.page(ScanSpec(after=first.after), sender=NodeId("0"))
    assert world.store.opened == opened + 1


def test_another_schema_is_not_read_with_a_cursor_from_before() -> None:
    world = World()
    found, _ = world.page(ScanSpec())
    newer = SCHEMA.__class__(2, SCHEMA.columns, SCHEMA.key)
    world.store.apply([ApplyEntry(OpId(1, 2), AT + 1, newer)])
    page, keys = world.page(ScanSpec(after=found.after))
    assert (page.schema_version, keys, world.store.opened) == (2, [3, 4, 5], 2)


def test_a_schema_that_changes_before_a_thread_opens_the_cursor_is_named_by_the_page() -> None:
    """The page named the schema of the moment at which the request came, and had the rows of the one after it."""
    world = World()
    world.ask(ScanSpec())
    added = msgspec.structs.replace(SCHEMA.columns[1], id=7, name="other")
    columns = (SCHEMA.columns[0], added)
    world.store.apply([ApplyEntry(OpId(1, 2), AT + 1, SCHEMA.__class__(2, columns, SCHEMA.key))])
    world.run_pool()
    page = decode(world.answers.pop()[0], ScanPage)
    assert (page.schema_version, page.row_count) == (2, 3)
    world.page(ScanSpec(after=page.after))
    assert world.store.opened == 1


def test_a_cursor_is_opened_again_if_the_schema_changes_while_it_is_opened() -> None:
    world = World()
    opened, newer = world.store.scan, SCHEMA.__class__(2, SCHEMA.columns, SCHEMA.key)

    def scan(spec: ScanSpec, at: int | None = None) -> Cursor:
        cursor = opened(spec, at)
        world.store.apply([ApplyEntry(OpId(1, 2), AT + 1, newer)])
        return cursor

    world.store.scan = scan  # type: ignore[method-assign]
    page, keys = world.page(ScanSpec())
    assert (page.schema_version, keys) == (2, [0, 1, 2])
    assert (world.store.opened, len(world.store.open)) == (2, 1)


def test_pages_that_are_read_again_because_they_are_too_large_name_the_schema_of_their_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    monkeypatch.setattr(scan_pages, "PAGE_BYTES_MAX", 60)
    opened, newer = world.store.scan, SCHEMA.__class__(2, SCHEMA.columns, SCHEMA.key)

    def scan(spec: ScanSpec, at: int | None = None) -> Cursor:
        if world.store.opened == 1:
            world.store.apply([ApplyEntry(OpId(1, 2), AT + 1, newer)])
        return opened(spec, at)

    world.store.scan = scan  # type: ignore[method-assign]
    page, _ = world.page(ScanSpec(), rows_max=10)
    assert world.store.opened > 1
    assert page.schema_version == 2


def test_what_goes_wrong_ahead_is_told_to_nobody_and_whoever_asks_then_is_told_anew() -> None:
    world = World()
    world.ask(ScanSpec())
    work, done = world.work.pop()
    done(work())
    found = decode(world.answers.pop()[0], ScanPage)
    world.store.refuse = TooOld(5)
    world.run_pool()
    assert (world.answers, world.store.open) == ([], set())
    world.ask(ScanSpec(after=found.after))
    world.run_pool()
    assert isinstance(world.answers.pop(), TooOld)
    assert world.store.open == set()


def test_a_limit_bounds_what_the_engine_is_asked_for_unless_a_filter_may_pass_rows_over() -> None:
    world = World()
    world.page(ScanSpec(limit=2), rows_max=8)
    world.page(ScanSpec(limit=2, predicates=(Compare(1, ">", 5),)), rows_max=8)
    assert world.store.asked == [2, 8]


def test_a_scan_whose_rows_are_large_stays_near_pages_of_the_right_size(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(rows=100)
    monkeypatch.setattr(scan_pages, "PAGE_BYTES_MAX", 200)
    assert world.scan(ScanSpec(), rows_max=90) == [*range(100)]
    assert world.store.asked[0] == 90
    assert max(world.store.asked[3:]) < 40
    assert world.store.opened < 12


def test_pages_grow_while_rows_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(rows=100)
    monkeypatch.setattr(scan_pages, "FIRST_PAGE_ROWS_MAX", 5)
    assert world.scan(ScanSpec(), rows_max=30) == [*range(100)]
    assert world.store.asked == [5, 10, 20, 30, 30, 30, 30]


def test_a_page_that_the_engine_ended_early_does_not_make_the_next_one_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Small as it was, it once let the page behind it grow beyond all bounds, which was then read again from its
    beginning with a cursor of its own: half of all row groups were decoded twice."""
    world = World(rows=800)
    world.store.steps_of = 192
    monkeypatch.setattr(scan_pages, "FIRST_PAGE_ROWS_MAX", 5)
    monkeypatch.setattr(scan_pages, "PAGE_BYTES_MAX", 4000)
    assert world.scan(ScanSpec(), rows_max=600) == [*range(800)]
    assert world.store.opened == 1
    assert 60 <= max(world.store.asked) <= 200


def test_stopping_lets_go_of_everything() -> None:
    world = World()
    for name in "abc":
        world.page(ScanSpec(), sender=NodeId(name))
    world.pages.stop()
    assert world.store.open == set()


def test_a_page_that_was_given_up_before_its_turn_is_not_read() -> None:
    """A node under load read every page that its clients had given up, and then the repetitions behind them: with 120
    scans of pages of 0.15 s, 22 came to an end."""
    world = World()
    world.ask(ScanSpec()).set()
    world.run_pool()
    assert (world.store.opened, world.answers, world.store.open) == (0, [], set())


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_repeated_request_takes_the_place_of_the_one_that_was_given_up(is_begun: bool) -> None:
    world = World()
    given_up = world.ask(ScanSpec())
    work, done = world.work.pop()
    if is_begun:
        work = partial(lambda frames: frames, work())
    given_up.set()
    world.ask(ScanSpec())
    assert world.work == [], "it did not go to the end of the queue"
    done(work())
    assert decode(world.answers.pop()[0], ScanPage).row_count == 3
    assert world.store.opened == 1


def test_a_page_that_was_skipped_and_is_asked_for_at_that_moment_is_read() -> None:
    world = World()
    given_up = world.ask(ScanSpec())
    work, done = world.work.pop()
    given_up.set()
    skipped = work()
    world.ask(ScanSpec())
    done(skipped)
    world.run_pool()
    assert decode(world.answers.pop()[0], ScanPage).row_count == 3


def test_a_page_that_comes_too_late_is_kept_for_the_repeated_request_for_a_while() -> None:
    world = World()
    for pause_us, opened in ((KEEP_US - 1, 1), (KEEP_US, 3)):
        given_up = world.ask(ScanSpec())
        work, done = world.work.pop()
        found = work()
        given_up.set()
        done(found)
        assert world.answers == [] and world.work == [], "nothing is read ahead for a client that is away"
        world.pass_us(pause_us)
        world.ask(ScanSpec())
        world.run_pool()
        assert decode(world.answers.pop()[0], ScanPage).row_count == 3
        assert world.store.opened == opened
        world.pages.stop()


def test_two_equal_requests_that_both_wait_get_a_page_each() -> None:
    world = World()
    world.ask(ScanSpec())
    world.ask(ScanSpec())
    world.run_pool()
    assert [decode(answer[0], ScanPage).row_count for answer in world.answers] == [3, 3]
    assert len(world.store.open) == 1


def test_a_page_without_a_time_in_its_request_is_not_kept_and_damage_is_told_in_any_case() -> None:
    world = World()
    given_up = world.ask(ScanSpec(), at=None)
    work, done = world.work.pop()
    found = work()
    given_up.set()
    done(found)
    assert (world.answers, world.store.open) == ([], set())
    given_up = world.ask(ScanSpec())
    work, done = world.work.pop()
    given_up.set()
    done(error := TooOld(5))
    assert world.answers == [error] and world.store.open == set()


def test_a_repeated_request_does_not_take_the_place_of_one_for_another_store() -> None:
    world, other = World(), Store(5)
    world.ask(ScanSpec()).set()
    world.ask(ScanSpec(), store=other)
    world.run_pool()
    assert (world.store.opened, other.opened, len(world.answers)) == (0, 1, 1)
