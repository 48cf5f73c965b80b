"""Scans of few rows that the event loop runs itself: when, how many at once, and what goes wrong."""

from __future__ import annotations

from typing import Any

from stelae.server.tserver.open_scans import SHORT_US
from stelae.spi.errors import TooOld
from stelae.spi.ids import OpId
from stelae.spi.rows import RowBatch
from stelae.spi.scan import Order, ScanSpec
from stelae.spi.store import ApplyEntry
from tests.unit.tserver.scan_world import AT, SCHEMA, World


def short(world: World, rows_max: int = 5) -> World:
    world.store.inline_rows_max = rows_max
    return world


def keys_of(answer: Any) -> list[int]:
    return RowBatch.from_ipc(SCHEMA.layout, answer[1]).values(0)


def test_scans_of_few_rows_are_read_at_the_end_of_the_turn_and_others_by_the_pool() -> None:
    world = short(World())
    world.ask(ScanSpec(limit=3))
    world.ask(ScanSpec(limit=2, order=Order.KEY_DESCENDING))
    world.ask(ScanSpec(limit=7))
    world.ask(ScanSpec())
    assert not world.answers
    world.end_turn()
    assert [keys_of(answer) for answer in world.answers] == [[0, 1, 2], [9, 8]]
    assert len(world.work) == 2
    assert not world.store.open - {3, 4}


def test_short_scans_make_room_for_other_work_of_the_loop() -> None:
    world = short(World())
    world.store.on_inline = lambda: setattr(world, "now_us", world.now_us + SHORT_US // 2)
    for _ in range(5):
        world.ask(ScanSpec(limit=1))
    world.end_turn()
    assert len(world.answers) == 2
    world.ask(ScanSpec(limit=1))
    world.end_turn()
    assert len(world.answers) == 2
    for expected in (4, 6):
        world.pass_us(0)
        assert len(world.answers) == expected
    assert not world.work


def test_a_short_scan_that_was_given_up_before_the_end_of_the_turn_is_not_read() -> None:
    world = short(World())
    world.ask(ScanSpec(limit=1)).set()
    world.run_pool()
    assert not world.answers and not world.store.opened


def test_what_goes_wrong_in_a_short_scan_is_its_answer() -> None:
    world = short(World())
    world.store.refuse = TooOld(7)
    world.ask(ScanSpec(limit=1))
    world.store.on_inline = lambda: {}["a defect"]
    world.ask(ScanSpec(limit=1))
    world.end_turn()
    assert [type(answer) for answer in world.answers] == [KeyError, KeyError]
    world.store.on_inline = lambda: None
    world.ask(ScanSpec(limit=1))
    world.end_turn()
    assert world.answers[2] is world.store.refuse
    assert not world.store.open


def test_a_short_scan_on_several_pages_goes_on_with_its_cursor() -> None:
    world = short(World())
    assert world.scan(ScanSpec(limit=5), rows_max=2) == [0, 1, 2, 3, 4]
    assert world.store.opened == 1
    assert not world.store.open


def test_a_schema_that_changes_while_a_short_scan_is_opened_is_not_mixed_up() -> None:
    """Entries are applied on other threads, too."""
    world = short(World())
    newer = SCHEMA.__class__(2, SCHEMA.columns, SCHEMA.key)
    world.store.on_inline = lambda: world.store.apply([ApplyEntry(OpId(1, 2), AT + 1, newer)])  # type: ignore[func-returns-value]
    world.ask(ScanSpec(limit=1))
    world.end_turn()
    assert len(world.work) == 1
