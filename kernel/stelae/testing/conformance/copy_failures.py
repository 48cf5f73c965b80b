"""Checks of the fetching side when something fails: chunks, sources, sessions, stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from crc32c import crc32c

from stelae.spi.copy import Alive, FetchChunk, SourceAnswer, SourceRequest
from stelae.spi.copy_plan import Chunk, Complete, Interruption, Partial, Refused, SourceDamaged
from stelae.spi.errors import CallerError, Corrupt, Full, StorageError, SyncFailed
from stelae.spi.ids import NodeId
from stelae.spi.services import Buffer
from stelae.spi.wal import SnapshotUnit
from stelae.testing.conformance.copy_harness import CHUNK_BYTES, FOLLOWER, LEADER, CopyHarness, data_of, three_items
from stelae.testing.copy_world import CopyWorld, MemoryContent, MemorySink, flipped


def with_data(chunk: Chunk, data: bytes) -> Chunk:
    return msgspec.structs.replace(chunk, data=data, crc=crc32c(data))


DAMAGES: dict[str, Callable[[Chunk], SourceAnswer]] = {
    "a flipped bit": flipped,
    "another offset": lambda chunk: msgspec.structs.replace(chunk, offset=chunk.offset + 1),
    "no bytes": lambda chunk: with_data(chunk, b""),
    "more bytes than asked": lambda chunk: with_data(chunk, chunk.data + b"x"),
    "an answer to another request": lambda chunk: Alive(),
}

SINK_ERRORS: list[tuple[StorageError, Interruption]] = [
    (Full("the stage is full"), Interruption.NO_SPACE),
    (SyncFailed("the disk of the stage is gone"), Interruption.STAGE_FAILED),
]


class CopyFailureChecks:
    """What a copy does when something fails, and what it says about it."""

    @pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
    def test_a_chunk_that_arrives_damaged_is_fetched_again_and_only_that_one(
        self, harness: CopyHarness, damage: Callable[[Chunk], SourceAnswer]
    ) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        hit: list[FetchChunk] = []

        def once(_node: NodeId, request: SourceRequest, chunk: Chunk) -> SourceAnswer:
            assert isinstance(request, FetchChunk)
            if hit or request.item != "rows/a" or request.offset != 2 * CHUNK_BYTES:
                return chunk
            hit.append(request)
            return damage(chunk)

        world.faults.damage = once
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert hit
        assert sink.durable == items
        assert world.network.fetched("rows/a") == len(items["rows/a"]) + CHUNK_BYTES

    def test_a_short_chunk_is_used_and_the_rest_is_asked_for(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        world.faults.damage = lambda node, request, chunk: with_data(chunk, chunk.data[: max(len(chunk.data) // 2, 1)])
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert sink.durable == items

    def test_chunks_that_always_arrive_damaged_end_the_copy(self, harness: CopyHarness) -> None:
        world = harness.world()
        _, offer = harness.offer(world, MemoryContent(three_items()))
        world.faults.damage = lambda node, request, chunk: flipped(chunk)
        sink = MemorySink(offer.snapshot.items)
        outcome = world.run(world.plan(offer), sink)
        assert isinstance(outcome, Partial | SourceDamaged)
        assert "rows/a" not in sink.durable
        assert "rows/a" not in sink.parts or not sink.parts["rows/a"]

    def test_an_item_that_differs_from_its_digest_at_the_source_is_never_durable(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        held = MemoryContent(items)
        _, offer = harness.offer(world, held)
        held.bytes_of["rows/a"] = data_of(10 * CHUNK_BYTES, seed=4)
        sink = MemorySink(offer.snapshot.items)
        outcome = world.run(world.plan(offer), sink)
        assert isinstance(outcome, SourceDamaged)
        assert (outcome.source, outcome.item) == (LEADER, "rows/a")
        assert "rows/a" not in sink.durable

    def test_a_source_that_cannot_read_its_item_is_damaged(self, harness: CopyHarness) -> None:
        world, held = harness.world(), MemoryContent(three_items())
        _, offer = harness.offer(world, held)

        def damaged(item: str) -> None:
            raise Corrupt(f"{item} is damaged", path="data/t1/a")

        held.on_read = damaged
        outcome = world.run(world.plan(offer), MemorySink(offer.snapshot.items))
        assert isinstance(outcome, SourceDamaged)
        assert outcome.source == LEADER

    def test_a_source_that_fails_to_read_is_not_called_damaged(self, harness: CopyHarness) -> None:
        """A call that failed says nothing about the bytes. A source that is called damaged is never asked again."""
        world, held = harness.world(), MemoryContent(three_items())
        _, offer = harness.offer(world, held)

        def fails(item: str) -> None:
            raise StorageError("input/output error", path="data/t1/a")

        held.on_read = fails
        outcome = world.run(world.plan(offer), MemorySink(offer.snapshot.items))
        assert isinstance(outcome, Refused | Partial)
        assert isinstance(outcome, Refused) or outcome.why is Interruption.SOURCE_LOST

    def test_another_source_replaces_a_damaged_one(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        held = MemoryContent(items)
        _, first = harness.offer(world, held)
        _, second = harness.offer(world, MemoryContent(items), FOLLOWER)
        held.bytes_of.update({name: data_of(len(data), seed=4) for name, data in items.items()})
        sink = MemorySink(first.snapshot.items)
        assert isinstance(world.run(world.plan(first), sink), SourceDamaged)
        assert isinstance(world.run(world.plan(second), sink), Complete)
        assert sink.durable == items

    def test_a_copy_goes_on_from_another_source_in_the_middle_of_an_item(self, harness: CopyHarness) -> None:
        world, items = harness.world(), {"rows/a": data_of(40 * CHUNK_BYTES)}
        _, first = harness.offer(world, MemoryContent(items))
        world.faults.lost = lambda node, request: node == LEADER and len(world.network.chunks(LEADER)) > 20
        sink = MemorySink(first.snapshot.items)
        assert isinstance(world.run(world.plan(first), sink), Partial)
        stored = len(sink.parts["rows/a"])
        assert stored >= 15 * CHUNK_BYTES
        _, second = harness.offer(world, MemoryContent(items), FOLLOWER)
        assert world.run(world.plan(second), sink) == Complete(bytes_fetched=40 * CHUNK_BYTES - stored)
        assert sink.durable == items

    def test_lost_requests_are_repeated(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        world.faults.lost = lambda node, request: len(world.network.asked) % 7 == 3
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert sink.durable == items

    def test_a_source_that_vanishes_for_a_moment_is_asked_again(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        gone_until_us = world.clock.now_us + 700_000
        world.faults.lost = lambda node, request: world.clock.now_us < gone_until_us
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(world.run(world.plan(offer), sink), Complete)

    def test_without_any_source_the_copy_ends_and_can_be_resumed(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        world.faults.damage = lambda node, request, chunk: self._gone_after(world, 9, chunk)
        sink = MemorySink(offer.snapshot.items)
        outcome = world.run(world.plan(offer), sink)
        assert isinstance(outcome, Partial)
        assert outcome.why is Interruption.SOURCE_LOST
        stored = sum(map(len, sink.durable.values())) + sum(map(len, sink.parts.values()))
        assert stored > 0
        world.faults.gone.clear()
        world.faults.damage = lambda node, request, chunk: chunk
        resumed = world.run(world.plan(offer), sink)
        total = sum(map(len, items.values()))
        assert resumed == Complete(bytes_fetched=total - stored), "bytes that were stored were fetched again"
        assert sink.durable == items

    @staticmethod
    def _gone_after(world: CopyWorld, count: int, chunk: Chunk) -> Chunk:
        if len(world.network.chunks()) > count:
            world.faults.gone.add(LEADER)
        return chunk

    def test_a_session_that_ends_in_the_middle_is_said_and_the_copy_resumes(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        source, offer = harness.offer(world, MemoryContent(items))

        def ending(node: NodeId, request: SourceRequest, chunk: Chunk) -> Chunk:
            if len(world.network.chunks()) == 11:
                source.end_all()
            return chunk

        world.faults.damage = ending
        sink = MemorySink(offer.snapshot.items)
        outcome = world.run(world.plan(offer), sink)
        assert isinstance(outcome, Partial)
        assert outcome.why is Interruption.SESSION_ENDED
        stored = sum(map(len, sink.durable.values())) + sum(map(len, sink.parts.values()))
        again = world.offer(LEADER, source, MemoryContent(items))
        assert again.session != offer.session
        assert world.run(world.plan(again), sink) == Complete(bytes_fetched=sum(map(len, items.values())) - stored)

    def test_a_source_that_refuses_the_request_is_said(self, harness: CopyHarness) -> None:
        world, held = harness.world(), MemoryContent(three_items())
        _, offer = harness.offer(world, held)

        def refuse(_item: str) -> None:
            raise CallerError("not for you")

        held.on_read = refuse
        outcome = world.run(world.plan(offer), MemorySink(offer.snapshot.items))
        assert isinstance(outcome, Refused)
        assert outcome.code == "BAD_REQUEST"

    def test_a_full_stage_ends_the_copy_and_it_resumes_when_there_is_space(self, harness: CopyHarness) -> None:
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = MemorySink(offer.snapshot.items)
        sink.space_bytes = 12 * CHUNK_BYTES
        outcome = world.run(world.plan(offer), sink)
        assert isinstance(outcome, Partial)
        assert outcome.why is Interruption.NO_SPACE
        stored = sum(map(len, sink.durable.values())) + sum(map(len, sink.parts.values()))
        sink.space_bytes = 1 << 40
        resumed = world.run(world.plan(offer), sink)
        assert resumed == Complete(bytes_fetched=sum(map(len, items.values())) - stored)
        assert sink.durable == items

    @pytest.mark.parametrize(("error", "why"), SINK_ERRORS, ids=["full", "failed"])
    @pytest.mark.parametrize("method", ["checksum", "write", "finish", "discard"])
    def test_a_stage_that_fails_in_any_call_ends_the_copy(
        self, harness: CopyHarness, method: str, error: StorageError, why: Interruption
    ) -> None:
        """An earlier run has stored a right part of one item and a wrong part of another, so each method is called."""
        world, items = harness.world(), three_items()
        _, offer = harness.offer(world, MemoryContent(items))
        sink = _FailingSink(offer.snapshot.items, method, error)
        sink.parts["rows/a"] = bytearray(items["rows/a"][:CHUNK_BYTES])
        sink.parts["log/21-30"] = bytearray(CHUNK_BYTES)
        outcome = world.run(world.plan(offer), sink)
        assert isinstance(outcome, Partial)
        assert outcome.why is why and outcome.reason
        assert sink.failed, f"{method} was not called"


class _FailingSink(MemorySink):
    """A stage of which one method raises an error."""

    def __init__(self, items: Sequence[SnapshotUnit], method: str, error: StorageError) -> None:
        super().__init__(items)
        self._method, self._error = method, error
        self.failed = False

    def _called(self, method: str) -> None:
        if method == self._method:
            self.failed = True
            raise self._error

    def checksum(self, item: str) -> int:
        self._called("checksum")
        return super().checksum(item)

    def write(self, item: str, offset: int, data: Buffer) -> None:
        self._called("write")
        super().write(item, offset, data)

    def finish(self, item: str) -> None:
        self._called("finish")
        super().finish(item)

    def discard(self, item: str) -> None:
        self._called("discard")
        super().discard(item)
