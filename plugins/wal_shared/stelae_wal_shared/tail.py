"""The tail of the node's log: the open segment, which takes the next group, and the roll to the next segment.

When the open segment is three quarters full, a worker begins to prepare the file of the next segment. If that file is
also written with zeros, which takes longer, the worker begins at one half. Appends continue in the old segment however
long the worker takes. Once the file is ready and the old segment is full, the next group rolls:

1. Everything in the old segment is made durable. The segment gets its footer and is cut to its length.
2. The new segment gets its head, with an image of all logs, and is synced.
3. The new segment is renamed to its final name, and the directory is synced.

A crash after any step leaves a complete log: before step 3 the new file has no meaning. A segment that failed, or that
recovery has read, takes no more records. The next group begins a new segment."""

from __future__ import annotations

from contextlib import suppress

from stelae.spi.errors import Full, StorageError
from stelae.spi.services import File, Workers
from stelae_shared.log_files.spare_file import SpareFile, discard, make_file
from stelae_wal_shared.config import SharedConfig
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.footer import encode_footer
from stelae_wal_shared.head import encode_head, written_bytes
from stelae_wal_shared.index import SharedSegmentIndex
from stelae_wal_shared.marker import SharedMarker
from stelae_wal_shared.segment import SharedSegment, new_segment_path, segment_path
from stelae_wal_shared.writer import SharedWriter, reserve_bytes

HEAD_SHARE = 8
"""A segment has at least this many times the space of its head, however many logs there are."""


class LogTail:
    """The open segment and the prepared file of the next one. One caller at a time: see ``stelae.spi.wal``.

    Attributes:
        writer: writer of the open segment; ``None`` while no segment is open.
        refused_bytes: length of the last group that found no space; 0 once that much space was found.
    """

    def __init__(self, state: EngineState, config: SharedConfig, workers: Workers, marker: SharedMarker) -> None:
        self._state = state
        self._config = config
        self._workers = workers
        self._marker = marker
        self._spare: SpareFile | None = None
        self._retry_at = 0
        self._rolls = 0
        self.writer: SharedWriter | None = None
        self.refused_bytes = 0

    def writer_for(self, size: int) -> SharedWriter:
        """Return the writer for the next ``size`` bytes of entries; begin another segment if that is due.

        Raises:
            Full: there is no space. No byte was written, and an open segment keeps its reserve.
            StorageError: no segment can be opened or extended.
        """
        writer = self.writer
        if writer is None:
            writer = self.begin_segment()
        elif writer.end + size >= writer.prepare_from:
            self._prepare(writer)
            if writer.end + size > writer.room and writer.end > writer.segment.start:
                writer = self._roll(writer)
        try:
            writer.claim(size)
        except Full:
            self.refused_bytes = size
            raise
        return writer

    def make_room(self) -> None:
        """Find the space that the last group lacked. Begins a segment if none is open.

        Raises:
            StorageError: as ``writer_for``.
        """
        writer = self.writer or self.begin_segment()
        writer.claim(self.refused_bytes)
        self.refused_bytes = 0

    def begin_segment(self) -> SharedWriter:
        """Begin a new segment behind the last one.

        Raises:
            StorageError: as ``Files``; nothing has changed.
        """
        assert self.writer is None
        self.drop_spare()
        state, size = self._state, self._config.segment_bytes_first
        path = new_segment_path(state.directory, self._marker.draw_nonce())
        try:
            file = make_file(state.files, path, size)
        except Full:
            # The space that is left may suffice for the records that free more.
            file = make_file(state.files, path, 0)
        self._rolls = 0
        return self._adopt(file, path, size)

    def sync(self) -> None:
        """Make everything durable.

        Raises:
            StorageError: that failed; what was not durable before must not be trusted.
        """
        if self.writer is not None and self.writer.unsynced:
            self.writer.sync()
        self._state.mark_all_durable()

    def seal(self, *, closing: bool = False) -> None:
        """Close the open segment. With ``closing``, add an image of all logs, so that the next start need not read it.

        Raises:
            StorageError: as ``sync``; the segment is still open.
        """
        self.sync()
        writer, self.writer = self.writer, None
        if writer is not None:
            segment = writer.segment
            if writer.seal(self.footer_of(segment, closing=closing)):
                self._state.mark_sealed(segment)
        if closing:
            self._note_end()

    def footer_of(self, segment: SharedSegment, *, closing: bool) -> bytes:
        """Return the footer of a segment whose index is in memory."""
        image = self._state.image(without=segment) if closing else b""
        assert segment.index is not None
        return encode_footer(segment.index, segment.entries, segment.end, segment.nonce, image)

    def abandon_segment(self) -> None:
        """Give up the open segment after a failed sync. It ends at its last durable byte."""
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.abandon()
            with self._state.lock:
                writer.segment.end = writer.synced
        self.drop_spare()

    def drop_spare(self) -> None:
        """Remove the file that is prepared for the next segment."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.give_up()

    def _note_end(self) -> None:
        """Record the length of the newest segment in the marker, so that recovery notices if it is truncated later."""
        newest = max(self._state.segments.values(), key=lambda one: one.number, default=None)
        known = self._marker.newest, self._marker.newest_end
        if newest is not None and (newest.number, newest.end) > known:
            with suppress(StorageError):  # Without it, the marker keeps the older length, which is still true.
                self._marker.note_newest(newest.number, newest.end)

    # -- rolling ---------------------------------------------------------------------------------

    def _prepare(self, writer: SharedWriter) -> None:
        """Request the next file. After a failure, wait until another quarter of a segment was appended."""
        spare = self._spare
        if spare is not None and spare.failed:
            self._spare = None
            self._retry_at = writer.end + writer.target // 4
        if self._spare is None and writer.end >= self._retry_at:
            self._retry_at = 0
            size = self._config.segment_bytes(self._rolls + 1)
            path = new_segment_path(self._state.directory, self._marker.draw_nonce())
            self._spare = SpareFile(self._state.files, path, size, prewritten=self._config.prewritten(size))
            self._spare.request(self._workers)

    def _roll(self, writer: SharedWriter) -> SharedWriter:
        spare = self._spare
        file = spare.take() if spare is not None else None
        if spare is None or file is None:
            return writer
        self._spare = None
        try:
            self.seal()
        except StorageError:
            discard(self._state.files, file, spare.path)
            raise
        self._rolls += 1
        return self._adopt(file, spare.path, spare.size, prewritten=self._config.prewritten(spare.size))

    def _adopt(self, file: File, path: str, size: int, *, prewritten: bool = False) -> SharedWriter:
        """Do steps 2 and 3 of the module's description; ``prewritten``: the file was written with zeros."""
        state = self._state
        number = state.newest + 1
        nonce = self._marker.draw_nonce()
        image = state.image()
        head = encode_head(number, nonce, image)
        target = max(size, len(head) + HEAD_SHARE * written_bytes(image))
        name = segment_path(state.directory, number)
        try:
            for length in (target, len(head) + reserve_bytes(target)):
                with suppress(Full):
                    file.preallocate(length)
                    break
            file.pwritev([head], 0)
            file.sync()
            file.close()
            # From here on the number is used, even if the file cannot be renamed.
            state.newest = number
            state.files.rename(path, name)
            state.files.sync_directory(state.directory)
            file = state.files.open(name, writable=True)
        except StorageError:
            discard(state.files, file, path)
            raise
        segment = SharedSegment(number, nonce, name, len(head), len(head))
        segment.index = SharedSegmentIndex()
        state.add(segment)
        early = self._config.prewritten(self._config.segment_bytes(self._rolls + 1))
        prepare_from = target // 2 if early else -(-3 * target // 4)
        self.writer = self._new_writer(file, segment, target, prepare_from, prewritten=prewritten and target == size)
        with suppress(StorageError):
            self._marker.note_newest(number)
        return self.writer

    def _new_writer(
        self, file: File, segment: SharedSegment, target: int, prepare_from: int, *, prewritten: bool
    ) -> SharedWriter:
        """Return the writer of a new segment; ``prewritten``: its file was written with zeros."""
        return SharedWriter(file, segment, target, prepare_from)
