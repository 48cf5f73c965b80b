"""Checks of the serving side: sessions, slots, expiry, and what a request may read."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c

from stelae.spi.copy import (
    Alive,
    CopyContent,
    CopySource,
    FetchChecksum,
    FetchChunk,
    KeepAlive,
    PrefixChecksum,
    SessionKey,
)
from stelae.spi.copy_plan import CHUNK_BYTES_MAX, Chunk, CopySessionEnded
from stelae.spi.errors import CallerError, Corrupt, Full, Overloaded
from stelae.spi.ids import NodeId, TabletId
from stelae.testing.conformance.copy_harness import CHUNK_BYTES, CopyHarness, data_of, needs_limit
from stelae.testing.copy_world import TABLET, TARGET, MemoryContent

KEY = SessionKey(TABLET, TARGET, "form")
STRANGER = NodeId("e" * 32)
DATA = data_of(3 * CHUNK_BYTES)


def content() -> MemoryContent:
    return MemoryContent({"rows/a": DATA})


def never() -> CopyContent:
    raise AssertionError("the snapshot was taken although there is a session, or no slot")


def fetch(source: CopySource, session: str, offset: int = 0, bytes_max: int = CHUNK_BYTES) -> Chunk:
    answer = source.answer(TARGET, FetchChunk(session, "rows/a", offset, bytes_max))
    assert isinstance(answer, Chunk)
    return answer


class SessionChecks:
    """The contract of ``CopySource``."""

    def test_beginning_again_returns_the_same_session_and_snapshot(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world())
        first, snapshot = source.begin(KEY, content), content().snapshot
        assert source.begin(KEY, never) == first
        assert first.snapshot == snapshot
        assert first.ttl_ms == 10_000
        assert 0 < len(first.id) <= 64

    def test_another_peer_form_or_tablet_has_a_session_of_its_own(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world())
        keys = [KEY, SessionKey(TABLET, STRANGER, "form"), SessionKey(TABLET, TARGET, "other")]
        keys.append(SessionKey(TabletId("t2"), TARGET, "form"))
        assert len({source.begin(key, content).id for key in keys}) == 4
        assert [view.key for view in source.sessions()] == keys

    def test_no_id_is_used_twice_also_after_a_restart(self, harness: CopyHarness) -> None:
        world = harness.world()
        ids = []
        for run in ("run-1", "run-2"):
            source = harness.source(world, run)
            for _ in range(2):
                ids.append(source.begin(KEY, content).id)
                source.end(TARGET, ids[-1])
        assert len(set(ids)) == 4

    def test_a_session_serves_only_its_peer(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world())
        session = source.begin(KEY, content).id
        for request in (FetchChunk(session, "rows/a", 0, 10), FetchChecksum(session, "rows/a", 10), KeepAlive(session)):
            with pytest.raises(CopySessionEnded):
                source.answer(STRANGER, request)
        source.end(STRANGER, session)
        assert fetch(source, session).data == DATA[:CHUNK_BYTES]

    def test_chunks_have_the_bytes_and_their_checksum(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world())
        session, read = source.begin(KEY, content).id, b""
        while len(read) < len(DATA):
            chunk = fetch(source, session, len(read), 1000)
            assert chunk.offset == len(read)
            assert 0 < len(chunk.data) <= 1000
            assert chunk.crc == crc32c(chunk.data)
            read += chunk.data
        assert read == DATA
        assert [view.bytes_sent for view in source.sessions()] == [len(DATA)]

    def test_the_checksum_of_a_part_is_of_exactly_that_part(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world())
        session = source.begin(KEY, content).id
        for size_bytes in (1, CHUNK_BYTES, len(DATA)):
            answer = source.answer(TARGET, FetchChecksum(session, "rows/a", size_bytes))
            assert answer == PrefixChecksum(crc32c(DATA[:size_bytes]))

    @pytest.mark.parametrize(
        "request_of",
        [
            lambda session: FetchChunk(session, "rows/b", 0, 10),
            lambda session: FetchChunk(session, "rows/a", len(DATA), 10),
            lambda session: FetchChunk(session, "rows/a", -1, 10),
            lambda session: FetchChunk(session, "rows/a", 0, 0),
            lambda session: FetchChunk(session, "rows/a", 0, CHUNK_BYTES_MAX + 1),
            lambda session: FetchChecksum(session, "rows/b", 1),
            lambda session: FetchChecksum(session, "rows/a", 0),
            lambda session: FetchChecksum(session, "rows/a", len(DATA) + 1),
        ],
    )
    def test_a_request_outside_of_the_snapshot_is_refused_and_the_session_goes_on(
        self, harness: CopyHarness, request_of: Callable[[str], FetchChunk | FetchChecksum]
    ) -> None:
        source = harness.source(harness.world())
        session = source.begin(KEY, content).id
        with pytest.raises(CallerError) as caught:
            source.answer(TARGET, request_of(session))
        assert not isinstance(caught.value, CopySessionEnded)
        assert fetch(source, session).data

    def test_beyond_the_slots_a_copy_is_refused_without_a_snapshot(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world(), source_slots=2)
        keys = [SessionKey(TabletId(f"t{number}"), TARGET, "form") for number in range(3)]
        ids = [source.begin(key, content).id for key in keys[:2]]
        with pytest.raises(Overloaded):
            source.begin(keys[2], never)
        source.end(TARGET, ids[0])
        source.end(TARGET, ids[0])
        source.begin(keys[2], content)
        with pytest.raises(Overloaded):
            source.begin(keys[0], never)

    def test_expiry_frees_the_slot_and_the_snapshot(self, harness: CopyHarness) -> None:
        world = harness.world()
        held = content()
        source = harness.source(world, source_slots=1)
        session = source.begin(KEY, lambda: held).id
        world.clock.now_us += 9_000_000
        source.expire()
        assert held.released == 0
        world.clock.now_us += 1_100_000
        source.expire()
        source.expire()
        assert held.released == 1
        for request in (FetchChunk(session, "rows/a", 0, 10), KeepAlive(session)):
            with pytest.raises(CopySessionEnded):
                source.answer(TARGET, request)
        source.begin(SessionKey(TABLET, STRANGER, "form"), content)

    def test_a_session_that_is_used_or_kept_alive_does_not_expire(self, harness: CopyHarness) -> None:
        world = harness.world()
        source = harness.source(world)
        session = source.begin(KEY, content).id
        for number in range(6):
            world.clock.now_us += 8_000_000
            source.expire()
            if number % 3 == 0:
                assert source.answer(TARGET, KeepAlive(session)) == Alive()
            elif number % 3 == 1:
                fetch(source, session)
            else:
                assert source.begin(KEY, never).id == session
        assert fetch(source, session).data

    def test_a_request_that_is_served_slowly_does_not_let_the_session_expire(self, harness: CopyHarness) -> None:
        world, held = harness.world(), content()
        source = harness.source(world)
        session = source.begin(KEY, lambda: held).id

        def slow(_item: str) -> None:
            world.clock.now_us += 60_000_000
            source.expire()

        held.on_read = slow
        assert fetch(source, session).data == DATA[:CHUNK_BYTES]
        held.on_read = lambda item: None
        world.clock.now_us += 9_000_000
        source.expire()
        assert fetch(source, session).data == DATA[:CHUNK_BYTES]

    def test_a_session_is_shown_with_its_id_and_how_long_it_was_idle(self, harness: CopyHarness) -> None:
        """The time counts from the end of the last request. It is 0 while one is served."""
        world, held = harness.world(), content()
        source = harness.source(world)
        session = source.begin(KEY, lambda: held).id

        def idle_ms() -> int:
            (view,) = source.sessions()
            assert view.id == session
            return view.idle_ms

        def slow(_item: str) -> None:
            world.clock.now_us += 5_000_000
            assert idle_ms() == 0, "a session is not idle while a request of it is served"

        assert idle_ms() == 0
        world.clock.now_us += 3_000_000
        assert idle_ms() == 3_000
        held.on_read = slow
        fetch(source, session)
        assert idle_ms() == 0
        world.clock.now_us += 2_000_000
        assert idle_ms() == 2_000
        source.answer(TARGET, KeepAlive(session))
        assert idle_ms() == 0
        world.clock.now_us += 1_000_000
        assert source.begin(KEY, never).id == session
        assert idle_ms() == 0

    def test_a_session_that_ends_during_a_request_is_released_after_it(self, harness: CopyHarness) -> None:
        held = content()
        source = harness.source(harness.world())
        session = source.begin(KEY, lambda: held).id

        def end(_item: str) -> None:
            source.end(TARGET, session)
            assert held.released == 0

        held.on_read = end
        assert fetch(source, session).data == DATA[:CHUNK_BYTES]
        assert held.released == 1
        with pytest.raises(CopySessionEnded):
            fetch(source, session)

    def test_the_sessions_of_a_tablet_end_together(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world())
        held = [content() for _ in range(3)]
        other = SessionKey(TabletId("t2"), TARGET, "form")
        source.begin(KEY, lambda: held[0])
        source.begin(SessionKey(TABLET, STRANGER, "form"), lambda: held[1])
        source.begin(other, lambda: held[2])
        source.end_all(TABLET)
        assert [c.released for c in held] == [1, 1, 0]
        assert [view.key for view in source.sessions()] == [other]
        source.end_all()
        assert [c.released for c in held] == [1, 1, 1]

    def test_a_tablet_that_ends_while_its_snapshot_is_taken_gets_no_session(self, harness: CopyHarness) -> None:
        source, held = harness.source(harness.world(), source_slots=1), content()

        def take() -> CopyContent:
            source.end_all(TABLET)
            return held

        with pytest.raises(Overloaded):
            source.begin(KEY, take)
        assert held.released == 1
        assert not source.sessions()
        source.begin(KEY, content)

    def test_a_tablet_that_ends_while_its_snapshot_fails_can_be_copied_later(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world(), source_slots=1)

        def take() -> CopyContent:
            source.end_all()
            raise Full("no space for the log")

        with pytest.raises(Full):
            source.begin(KEY, take)
        assert source.begin(KEY, content).snapshot == content().snapshot

    def test_a_snapshot_that_cannot_be_taken_costs_no_slot(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world(), source_slots=1)

        def full() -> CopyContent:
            raise Full("no space for the log")

        for _ in range(2):
            with pytest.raises(Full):
                source.begin(KEY, full)
        source.begin(KEY, content)

    def test_a_second_begin_while_the_snapshot_is_taken_is_refused(self, harness: CopyHarness) -> None:
        source = harness.source(harness.world())

        def take() -> CopyContent:
            with pytest.raises(Overloaded):
                source.begin(KEY, never)
            return content()

        source.begin(KEY, take)
        assert len(source.sessions()) == 1

    def test_bytes_that_cannot_be_read_are_an_error_and_the_session_goes_on(self, harness: CopyHarness) -> None:
        held = content()
        source = harness.source(harness.world())
        session = source.begin(KEY, lambda: held).id

        def damaged(item: str) -> None:
            raise Corrupt(f"{item} is damaged")

        held.on_read = damaged
        with pytest.raises(Corrupt):
            fetch(source, session)
        held.on_read = lambda item: None
        assert fetch(source, session).data == DATA[:CHUNK_BYTES]

    def test_the_limit_of_the_source_holds(self, harness: CopyHarness) -> None:
        world = harness.world()
        source = harness.source(world, serve_bytes_per_s_max=100_000)
        needs_limit(source)
        session, sent, began_us = source.begin(KEY, content).id, 0, world.clock.now_us
        while sent < 40 * CHUNK_BYTES:
            try:
                sent += len(fetch(source, session).data)
            except Overloaded:
                world.clock.now_us += 1_000
        seconds = (world.clock.now_us - began_us) / 1e6
        assert seconds >= (sent - CHUNK_BYTES) / 100_000 - 0.2, "more than the limit was sent"
        assert seconds <= sent / 100_000 * 1.5 + 0.2, "much less than the limit was sent"
