"""Checks that a source whose disk is slow still answers its other callers, on other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

from stelae.spi.copy import CopyContent, CopySource, FetchChecksum, FetchChunk, KeepAlive, SessionKey
from stelae.spi.errors import Overloaded
from stelae.spi.ids import TabletId
from stelae.testing.conformance.copy_harness import CHUNK_BYTES, CopyHarness, data_of
from stelae.testing.copy_world import TABLET, TARGET, MemoryContent

KEY = SessionKey(TABLET, TARGET, "form")
OTHER = SessionKey(TabletId("t2"), TARGET, "form")
HANGS_AFTER_S = 20.0  #: A call that has not returned by then waits for the disk.


class _SlowDisk:
    """A disk on which every call waits until ``release`` is called."""

    def __init__(self) -> None:
        self._waits = threading.Event()
        self._go_on = threading.Event()

    def wait(self, _item: str = "") -> None:
        """Wait, as a call on this disk does."""
        self._waits.set()
        self._go_on.wait()

    def wait_until_used(self) -> None:
        """Return once a call waits for the disk."""
        assert self._waits.wait(HANGS_AFTER_S), "the disk is not used"

    def release(self) -> None:
        """Let all calls return."""
        self._go_on.set()


def returns(what: str, call: Callable[[], object]) -> None:
    """Call on another thread, and check that the call returns or raises."""
    ended = threading.Event()

    def run() -> None:
        try:
            call()
        finally:
            ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert ended.wait(HANGS_AFTER_S), f"{what} waits for the disk of another call"


class CopyThreadChecks:
    """The paragraph "Threads" of the contract, as far as a slow disk shows it."""

    def test_while_an_item_is_read_slowly_the_other_methods_go_on(self, harness: CopyHarness) -> None:
        self._reads_slowly(harness, lambda session: FetchChunk(session, "rows/a", 0, CHUNK_BYTES))

    def test_while_a_part_is_checked_slowly_the_other_methods_go_on(self, harness: CopyHarness) -> None:
        self._reads_slowly(harness, lambda session: FetchChecksum(session, "rows/a", CHUNK_BYTES))

    def _reads_slowly(self, harness: CopyHarness, request_of: Callable[[str], FetchChunk | FetchChecksum]) -> None:
        source, disk, held, other = harness.source(harness.world()), _SlowDisk(), _content(), _content()
        session, second = source.begin(KEY, lambda: held).id, source.begin(OTHER, lambda: other).id
        held.on_read = disk.wait
        reader = threading.Thread(target=source.answer, args=(TARGET, request_of(session)), daemon=True)
        reader.start()
        try:
            disk.wait_until_used()
            self._goes_on(source, session, second)
            returns("end_all", source.end_all)
            assert (held.released, other.released) == (0, 1), "a snapshot is released after the last read of it"
        finally:
            disk.release()
        reader.join(HANGS_AFTER_S)
        assert held.released == 1

    def test_while_a_snapshot_is_taken_slowly_the_other_methods_go_on(self, harness: CopyHarness) -> None:
        source, disk = harness.source(harness.world()), _SlowDisk()
        second = source.begin(OTHER, _content)
        opened: list[str] = []

        def take() -> CopyContent:
            disk.wait()
            return _content()

        beginner = threading.Thread(target=lambda: opened.append(source.begin(KEY, take).id), daemon=True)
        beginner.start()
        try:
            disk.wait_until_used()
            refused: list[bool] = []
            returns("begin for the same key", lambda: refused.append(_is_refused(source)))
            assert refused == [True]
            self._goes_on(source, "", second.id)
        finally:
            disk.release()
        beginner.join(HANGS_AFTER_S)
        assert [view.id for view in source.sessions()] == opened

    def _goes_on(self, source: CopySource, busy: str, second: str) -> None:
        """Check each method while another call of the source waits for the disk. It ends the second session."""
        returns("sessions", source.sessions)
        returns("expire", source.expire)
        returns("answer to another session", lambda: source.answer(TARGET, FetchChunk(second, "rows/a", 0, 10)))
        if busy:
            returns("answer to the same session", lambda: source.answer(TARGET, KeepAlive(busy)))
        returns("begin for another key", lambda: source.begin(SessionKey(TabletId("t3"), TARGET, "form"), _content))
        returns("end_all of another tablet", lambda: source.end_all(TabletId("t3")))
        returns("end", lambda: source.end(TARGET, second))


def _content() -> MemoryContent:
    return MemoryContent({"rows/a": data_of(2 * CHUNK_BYTES)})


def _is_refused(source: CopySource) -> bool:
    try:
        source.begin(KEY, _content)
    except Overloaded:
        return True
    return False
