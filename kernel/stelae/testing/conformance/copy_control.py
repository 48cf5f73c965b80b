"""Checks of limits, pauses, cancellation, progress and slots of the fetching side."""

from __future__ import annotations

import pytest

from stelae.spi.copy_plan import Complete, Interruption, Partial
from stelae.spi.errors import Overloaded
from stelae.spi.ids import TabletId
from stelae.testing.conformance.copy_harness import (
    CHUNK_BYTES,
    CopyHarness,
    change_limit,
    data_of,
    needs_limit,
    three_items,
)
from stelae.testing.copy_world import MemoryContent, MemorySink


class ControlChecks:
    """How a copy is limited and controlled."""

    def test_the_limit_of_the_target_holds(self, harness: CopyHarness) -> None:
        world = harness.world(fetch_bytes_per_s_max=100_000)
        needs_limit(world.target)
        _, offer = harness.offer(world, MemoryContent({"rows/a": data_of(100 * CHUNK_BYTES)}))
        began_us = world.clock.now_us
        assert isinstance(world.run(world.plan(offer), MemorySink(offer.snapshot.items)), Complete)
        seconds, due = (world.clock.now_us - began_us) / 1e6, 100 * CHUNK_BYTES / 100_000
        assert seconds >= (due - CHUNK_BYTES / 100_000) * 0.9 - 0.2, "faster than the limit"
        assert seconds <= due * 1.5 + 0.5, "much slower than the limit"

    def test_a_source_at_its_limit_is_waited_for(self, harness: CopyHarness) -> None:
        world = harness.world()
        items = {"rows/a": data_of(100 * CHUNK_BYTES)}
        _, offer = harness.offer(world, MemoryContent(items), serve_bytes_per_s_max=50_000)
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert sink.durable == items

    def test_a_limit_of_the_target_that_changes_in_the_middle_holds_at_once(self, harness: CopyHarness) -> None:
        world = harness.world()
        change_limit(world.target, 100)
        _, offer = harness.offer(world, MemoryContent({"rows/a": data_of(100 * CHUNK_BYTES)}))
        began_us, changes = world.clock.now_us, iter((20_000, 0))

        def never() -> bool:
            if world.control.admitted_bytes > 3 * CHUNK_BYTES and (rate := next(changes, None)) is not None:
                change_limit(world.target, rate)
            return False

        world.control.cancelled_when = never
        assert isinstance(world.run(world.plan(offer), MemorySink(offer.snapshot.items)), Complete)
        assert world.clock.now_us - began_us < 60 * CHUNK_BYTES * 1_000_000 // 100, "the first limit held to the end"

    def test_a_limit_of_the_source_that_is_lowered_holds_at_once(self, harness: CopyHarness) -> None:
        world = harness.world()
        source, offer = harness.offer(world, MemoryContent({"rows/a": data_of(50 * CHUNK_BYTES)}))
        change_limit(source, 100_000)
        began_us = world.clock.now_us
        assert isinstance(world.run(world.plan(offer), MemorySink(offer.snapshot.items)), Complete)
        seconds = (world.clock.now_us - began_us) / 1e6
        assert seconds >= 48 * CHUNK_BYTES / 100_000 * 0.9 - 0.2, "faster than the limit"

    def test_a_copy_beside_clients_completes_and_a_limit_that_was_set_is_as_before(self, harness: CopyHarness) -> None:
        world, items = harness.world(fetch_bytes_per_s_max=2_000_000), three_items()
        source, offer = harness.offer(world, MemoryContent(items), serve_bytes_per_s_max=1_000_000)
        before = [side.bytes_per_s_max() for side in (source, world.target)]
        for busy in (True, False, True):
            source.beside_clients(busy)
            world.target.beside_clients(busy)
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert sink.durable == items
        assert [side.bytes_per_s_max() for side in (source, world.target)] == before

    def test_the_caller_admits_every_byte_that_is_fetched(self, harness: CopyHarness) -> None:
        world = harness.world()
        _, offer = harness.offer(world, MemoryContent(three_items()))
        world.faults.lost = lambda node, request: len(world.network.asked) % 5 == 4
        world.run(world.plan(offer), MemorySink(offer.snapshot.items))
        asked = sum(chunk.bytes_max for chunk in world.network.chunks())
        assert world.control.admitted_bytes >= asked * 0.99 - CHUNK_BYTES

    def test_a_paused_copy_fetches_nothing_and_keeps_its_session(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        source, offer = harness.offer(world, MemoryContent(items))
        world.latency_us = 10_000
        pause_us = (world.clock.now_us + 4_500, world.clock.now_us + 65_000_000)
        world.control.paused_when = lambda: pause_us[0] <= world.clock.now_us < pause_us[1]
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        times = [when for when, _, request in world.network.asked if request in world.network.chunks()]
        assert not [when for when in times if pause_us[0] <= when < pause_us[1]]
        assert max(times) >= pause_us[1]
        assert [view.id for view in source.sessions()] == [offer.session]
        assert sink.durable == items

    def test_a_slow_copy_does_not_lose_its_session(self, harness: CopyHarness) -> None:
        world = harness.world()
        _, offer = harness.offer(world, MemoryContent(three_items()), session_ttl_ms=3_000)
        world.latency_us = 1_900_000
        assert isinstance(world.run(world.plan(offer), MemorySink(offer.snapshot.items)), Complete)

    def test_the_session_of_a_copy_that_waits_for_its_turn_is_kept_alive(self, harness: CopyHarness) -> None:
        world, items = harness.world(fetch_bytes_per_s_max=300), {"rows/a": data_of(3 * CHUNK_BYTES)}
        needs_limit(world.target)
        source, offer = harness.offer(world, MemoryContent(items))
        assert isinstance(world.run(world.plan(offer), MemorySink(offer.snapshot.items)), Complete)
        assert [view.id for view in source.sessions()] == [offer.session], (
            "each chunk waits longer than a session lives"
        )

    def test_a_cancelled_copy_ends_soon_and_asks_for_nothing_more(self, harness: CopyHarness) -> None:
        world = harness.world()
        _, offer = harness.offer(world, MemoryContent(three_items()))
        world.latency_us = 10_000
        at_us = world.clock.now_us + 5_000
        world.control.cancelled_when = lambda: world.clock.now_us >= at_us
        sink = MemorySink(offer.snapshot.items)
        outcome = world.run(world.plan(offer), sink)
        assert isinstance(outcome, Partial)
        assert outcome.why is Interruption.CANCELLED
        assert world.clock.now_us <= at_us + 100_000
        assert all(when <= at_us + 100_000 for when, _, _ in world.network.asked)

    def test_a_paused_copy_can_be_cancelled(self, harness: CopyHarness) -> None:
        world = harness.world()
        _, offer = harness.offer(world, MemoryContent(three_items()))
        at_us = world.clock.now_us + 5_000_000
        world.control.paused_when = lambda: True
        world.control.cancelled_when = lambda: world.clock.now_us >= at_us
        outcome = world.run(world.plan(offer), MemorySink(offer.snapshot.items))
        assert isinstance(outcome, Partial)
        assert outcome.why is Interruption.CANCELLED
        assert world.clock.now_us <= at_us + 100_000

    def test_progress_counts_bytes_up_to_the_total_and_expects_an_end(self, harness: CopyHarness) -> None:
        world, items = harness.world(fetch_bytes_per_s_max=20_000), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.parts["rows/a"] = bytearray(items["rows/a"][:CHUNK_BYTES])
        world.run(world.plan(offer), sink)
        reports, total = world.control.reports, sum(map(len, items.values()))
        done = [report.bytes_done for report in reports]
        assert done[0] == CHUNK_BYTES
        assert done == sorted(done)
        assert done[-1] == total == reports[-1].bytes_total
        assert reports[-1].bytes_fetched == total - CHUNK_BYTES
        needs_limit(world.target)
        half = next(report for report in reports if report.bytes_done * 2 >= total)
        left_ms = (total - half.bytes_done) / 20
        assert half.eta_ms is not None
        assert left_ms / 2 <= half.eta_ms <= left_ms * 2

    def test_progress_begins_with_what_earlier_runs_have_stored(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.durable["rows/a"] = items["rows/a"]
        world.run(world.plan(offer), sink)
        first, last = world.control.reports[0], world.control.reports[-1]
        assert (first.bytes_done, first.bytes_fetched) == (len(items["rows/a"]), 0)
        assert last.bytes_done == last.bytes_total == sum(map(len, items.values()))

    def test_the_slots_of_the_target_are_bounded(self, harness: CopyHarness) -> None:
        target = harness.world(target_slots=2).target
        assert harness.transport.target_slots(harness.config(target_slots=2)) == 2, "the kernel has as many threads"
        target.reserve(TabletId("t1"))
        with pytest.raises(Overloaded):
            target.reserve(TabletId("t1"))
        target.reserve(TabletId("t2"))
        with pytest.raises(Overloaded):
            target.reserve(TabletId("t3"))
        target.release(TabletId("t1"))
        target.release(TabletId("t1"))
        target.reserve(TabletId("t3"))
        with pytest.raises(Overloaded):
            target.reserve(TabletId("t1"))
