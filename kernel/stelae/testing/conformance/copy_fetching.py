"""Checks of the fetching side without failures: everything arrives, and nothing is fetched twice."""

from __future__ import annotations

import pytest

from stelae.spi.copy import FetchChecksum
from stelae.spi.copy_plan import Complete, Fences, Refused
from stelae.spi.ids import ZERO, OpId
from stelae.testing.conformance.copy_harness import CHUNK_BYTES, FOLLOWER, LEADER, CopyHarness, data_of, three_items
from stelae.testing.copy_serial import SerialTransport
from stelae.testing.copy_world import MemoryContent, MemorySink


class FetchChecks:
    """The contract of ``CopyTarget`` and of both sides together."""

    def test_every_item_arrives_and_every_byte_is_fetched_once(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        source, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        outcome = world.run(world.plan(offer), sink)
        total = sum(map(len, items.values()))
        assert outcome == Complete(bytes_fetched=total)
        assert sink.durable == items
        assert sum(chunk.bytes_max for chunk in world.network.chunks()) == total
        assert len(source.sessions()) == 1, "the caller ends the session, not the transport"

    def test_a_snapshot_without_items_is_complete_at_once(self, harness: CopyHarness) -> None:
        world = harness.world()
        _, offer = harness.offer(world, MemoryContent({}))
        assert world.run(world.plan(offer), MemorySink(())) == Complete(bytes_fetched=0)

    def test_only_the_items_of_the_plan_are_fetched(self, harness: CopyHarness) -> None:
        world = harness.world()
        _, offer = harness.offer(world, MemoryContent(three_items()))
        plan = world.plan(offer)
        wanted = type(plan)(offer=plan.offer, items=plan.items[:1], fences=plan.fences)
        sink = MemorySink(wanted.items)
        assert isinstance(world.run(wanted, sink), Complete)
        assert {chunk.item for chunk in world.network.chunks()} == {"rows/a"}

    def test_durable_items_are_not_fetched_again(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.durable["rows/a"] = items["rows/a"]
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert {chunk.item for chunk in world.network.chunks()} == {"log/21-30"}
        assert sink.durable == items

    def test_an_item_that_is_durable_with_another_digest_is_fetched(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        outcome = world.run(world.plan(offer), sink, have={"rows/a": "0" * 64, "rows/z": "0" * 64})
        assert isinstance(outcome, Complete)
        assert sink.durable == items

    @pytest.mark.parametrize("stored", [1, CHUNK_BYTES, 7 * CHUNK_BYTES + 3, 10 * CHUNK_BYTES - 1])
    def test_a_part_that_is_stored_is_used(self, harness: CopyHarness, stored: int) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.parts["rows/a"] = bytearray(items["rows/a"][:stored])
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert sink.durable == items
        assert world.network.fetched("rows/a") == len(items["rows/a"]) - stored

    @pytest.mark.parametrize("stored", [1, 3 * CHUNK_BYTES, 10 * CHUNK_BYTES - 1])
    def test_a_part_that_is_wrong_is_fetched_again_and_only_that_item(self, harness: CopyHarness, stored: int) -> None:
        world, items = harness.world(), three_items()
        source, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.parts["rows/a"] = bytearray(data_of(stored, seed=9))
        outcome = world.run(world.plan(offer), sink)
        assert isinstance(outcome, Complete), "a wrong part in the stage is not the source's damage"
        assert sink.durable == items
        assert world.network.fetched("rows/a") == len(items["rows/a"]), "a wrong part is found before it is completed"
        assert world.network.fetched("log/21-30") == len(items["log/21-30"])
        assert source.sessions()

    def test_an_item_that_is_stored_as_a_whole_needs_no_chunk(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.parts["rows/a"] = bytearray(items["rows/a"])
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert sink.durable == items
        assert world.network.fetched("rows/a") == 0

    @pytest.mark.parametrize("size_bytes", [10 * CHUNK_BYTES, 10 * CHUNK_BYTES + 1, 20 * CHUNK_BYTES])
    def test_a_stored_item_that_is_wrong_or_too_long_is_fetched_again(
        self, harness: CopyHarness, size_bytes: int
    ) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.parts["rows/a"] = bytearray(data_of(size_bytes, seed=9))
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert sink.durable == items

    def test_no_byte_of_a_part_is_asked_for_before_it_is_checked(self, harness: CopyHarness) -> None:
        world, items = harness.world(), {"rows/a": data_of(4 * CHUNK_BYTES)}
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.parts["rows/a"] = bytearray(items["rows/a"][:CHUNK_BYTES])
        world.run(world.plan(offer), sink)
        first = world.network.asked[0][2]
        assert isinstance(first, FetchChecksum)
        assert first.size_bytes == CHUNK_BYTES

    def test_a_source_below_a_fence_is_refused_and_asked_for_nothing(self, harness: CopyHarness) -> None:
        for fences in (
            Fences(tombstone=OpId(3, 31), config_op_id=ZERO),
            Fences(tombstone=OpId(4, 1), config_op_id=ZERO),
            Fences(tombstone=ZERO, config_op_id=OpId(2, 6)),
        ):
            world = harness.world()
            _, offer = harness.offer(world, MemoryContent(three_items()))
            outcome = world.run(world.plan(offer, fences=fences), MemorySink(offer.snapshot.items))
            assert isinstance(outcome, Refused)
            assert outcome.code == "FENCED"
            assert not world.network.asked
        world = harness.world()
        _, offer = harness.offer(world, MemoryContent(three_items()))
        reached = Fences(tombstone=OpId(3, 30), config_op_id=OpId(2, 5))
        assert isinstance(world.run(world.plan(offer, fences=reached), MemorySink(offer.snapshot.items)), Complete)

    def test_it_copies_from_and_to_another_transport(self, harness: CopyHarness) -> None:
        """The transport is chosen node by node, so the nodes of a cluster may have different ones."""
        other, items = CopyHarness(SerialTransport), three_items()
        for serving, fetching in ((harness, other), (other, harness)):
            world = fetching.world()
            offer = world.offer(LEADER, serving.source(world), MemoryContent(items))
            sink = MemorySink(offer.snapshot.items)
            sink.parts["rows/a"] = bytearray(items["rows/a"][:CHUNK_BYTES])
            assert isinstance(world.run(world.plan(offer), sink), Complete)
            assert sink.durable == items

    def test_durable_items_of_one_source_are_kept_when_the_source_changes(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        newer = {**items, "rows/a": data_of(8 * CHUNK_BYTES, seed=5)}
        _, first = harness.offer(world, MemoryContent(items))
        sink = MemorySink(first.snapshot.items)
        world.run(world.plan(first), sink)
        _, second = harness.offer(world, MemoryContent(newer), FOLLOWER)
        del sink.durable["rows/a"]
        sink.units = {unit.name: unit for unit in second.snapshot.items}
        assert isinstance(world.run(world.plan(second), sink), Complete)
        assert sink.durable == newer
        assert {chunk.item for chunk in world.network.chunks()} == {"rows/a"}
