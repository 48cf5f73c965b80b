"""Checks of what a copy costs: bytes that are read, chunks in memory, and limits that all copies of a node share."""

from __future__ import annotations

from stelae.spi.copy import FetchChecksum, FetchChunk, SessionKey, SourceRequest
from stelae.spi.copy_plan import CHUNK_BYTES_MAX, Chunk, Complete
from stelae.spi.errors import Overloaded
from stelae.spi.ids import NodeId, TabletId
from stelae.testing.conformance.copy_harness import CHUNK_BYTES, CopyHarness, data_of, needs_limit
from stelae.testing.copy_world import TABLET, TARGET, MemoryContent, MemorySink

KEYS = [SessionKey(tablet, TARGET, "form") for tablet in (TABLET, TabletId("t2"))]
ITEM_BYTES = 40 * CHUNK_BYTES
RATE = 100_000


class CopyCostChecks:
    """The paragraph "Cost" of the contract, and the limits of a node."""

    def test_a_request_reads_no_more_of_an_item_than_it_names(self, harness: CopyHarness) -> None:
        """A source that reads a whole item for each of its chunks reads a tablet a thousand times."""
        held = MemoryContent({"rows/a": data_of(ITEM_BYTES)})
        source = harness.source(harness.world())
        session = source.begin(KEYS[0], lambda: held).id
        for request, bytes_max in (
            (FetchChunk(session, "rows/a", 5 * CHUNK_BYTES, 100), 100),
            (FetchChunk(session, "rows/a", ITEM_BYTES - 10, CHUNK_BYTES), CHUNK_BYTES),
            (FetchChecksum(session, "rows/a", 3 * CHUNK_BYTES), 3 * CHUNK_BYTES),
        ):
            before = held.read_bytes
            source.answer(TARGET, request)
            assert 0 < held.read_bytes - before <= bytes_max

    def test_a_chunk_of_the_largest_size_may_be_asked_for(self, harness: CopyHarness) -> None:
        data = data_of(3 * CHUNK_BYTES)
        source = harness.source(harness.world())
        session = source.begin(KEYS[0], lambda: MemoryContent({"rows/a": data})).id
        answer = source.answer(TARGET, FetchChunk(session, "rows/a", 0, CHUNK_BYTES_MAX))
        assert isinstance(answer, Chunk)
        assert answer.data == data[: len(answer.data)] and answer.data

    def test_while_one_chunk_is_late_only_so_many_others_are_asked_for(self, harness: CopyHarness) -> None:
        """Bytes are written in order, so all that arrives before a late chunk waits in memory."""
        world, items = harness.world(), {"rows/a": data_of(10 * harness.chunks_in_memory_max * CHUNK_BYTES)}
        _, offer = harness.offer(world, MemoryContent(items))
        late_us = 1_500_000

        def delay(_node: NodeId, request: SourceRequest) -> int:
            return late_us if isinstance(request, FetchChunk) and request.offset == 0 else 0

        world.faults.delay_us = delay
        sink = MemorySink(offer.snapshot.items)
        assert isinstance(world.run(world.plan(offer), sink), Complete)
        assert sink.durable == items
        times = [when for when, _, request in world.network.asked if isinstance(request, FetchChunk)]
        asked = sum(when < times[0] + late_us for when in times)
        assert asked <= harness.chunks_in_memory_max, f"{asked} chunks were asked for before the first one was there"

    def test_the_limit_of_the_target_holds_for_all_copies_together(self, harness: CopyHarness) -> None:
        world, copies = harness.world(fetch_bytes_per_s_max=RATE), 40
        needs_limit(world.target)
        _, offer = harness.offer(world, MemoryContent({"rows/a": data_of(CHUNK_BYTES)}))
        began_us = world.clock.now_us
        for _ in range(copies):
            assert isinstance(world.run(world.plan(offer), MemorySink(offer.snapshot.items)), Complete)
        seconds = (world.clock.now_us - began_us) / 1e6
        assert seconds >= (copies - 1) * CHUNK_BYTES / RATE * 0.9 - 0.2, "each copy has a limit of its own"

    def test_the_limit_of_the_source_holds_for_all_sessions_together(self, harness: CopyHarness) -> None:
        world = harness.world()
        source = harness.source(world, serve_bytes_per_s_max=RATE)
        needs_limit(source)
        sessions = [source.begin(key, lambda: MemoryContent({"rows/a": data_of(CHUNK_BYTES)})).id for key in KEYS]
        sent, began_us = 0, world.clock.now_us
        while sent < 40 * CHUNK_BYTES:
            for session in sessions:
                try:
                    source.answer(TARGET, FetchChunk(session, "rows/a", 0, CHUNK_BYTES))
                    sent += CHUNK_BYTES
                except Overloaded:
                    world.clock.now_us += 1_000
        seconds = (world.clock.now_us - began_us) / 1e6
        assert seconds >= (sent - 2 * CHUNK_BYTES) / RATE - 0.2, "each session has a limit of its own"
