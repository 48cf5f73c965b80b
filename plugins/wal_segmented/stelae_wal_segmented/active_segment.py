"""The active segment of a log: the segment that takes the next group, and the roll to the next segment.

When the active segment is three quarters full, a worker begins to prepare the file of the next segment. If that file is
also written with zeros, which takes longer, the worker begins at one half. Appends continue in the old segment however
long the worker takes. Once the file is ready and the old segment is full, the next append rolls:

1. The old segment gets its footer, is cut to its length and synced.
2. The new segment gets its header, which records where the old one ends, and is synced.
3. The new segment is renamed to its final name, and the directory is synced.
4. The base file records durably that the new segment is the newest (see ``TabletLog.append``).

A crash after any step leaves a complete log. Before step 3 the new file has no meaning, and before step 4 it has no
entries.
"""

from __future__ import annotations

import threading

from stelae.spi.errors import StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.services import File
from stelae_shared.log_files.spare_file import SpareFile, discard, make_file
from stelae_shared.log_files.term_runs import TermRuns
from stelae_wal_segmented.format import NEW_SPACE, SegmentHeader
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.names import new_segment_name, segment_name
from stelae_wal_segmented.sectors import ReusedSpace
from stelae_wal_segmented.segment import Segment, SegmentChain, load_footer
from stelae_wal_segmented.space import SegmentedContext
from stelae_wal_segmented.writer import SegmentWriter


class ActiveSegment:
    """The writer of one log and the prepared file of its next segment. One caller at a time: see ``stelae.spi.wal``.

    Args:
        context: of the engine.
        directory: of the log.
        log: whose segments they are.
        lock: held while the chain changes.

    Attributes:
        writer: writer of the active segment; ``None`` while the log is cold.
        space: makes the files of new segments.
    """

    def __init__(self, context: SegmentedContext, directory: str, log: LogId, lock: threading.Lock) -> None:
        self._context = context
        self._directory = directory
        self._log = log
        self._lock = lock
        self._spare: SpareFile | None = None
        self._retry_at = 0
        self._rolls = 0
        self.writer: SegmentWriter | None = None
        self.space = context.space(context, directory)

    @property
    def unsynced(self) -> bool:
        """Whether groups were written that are not synced."""
        return self.writer is not None and self.writer.synced < self.writer.end

    def writer_for(self, chain: SegmentChain, first_sequence: int, last: OpId, hint: int) -> SegmentWriter:
        """Return the writer for the next group. Opens a segment of a cold log, and rolls when that is due.

        Args:
            chain: the log's segments.
            first_sequence: number of the log's first segment, if it has none yet.
            last: op id of the last entry.
            hint: highest commit index known, for the header of a new segment.

        Raises:
            StorageError: no segment can be opened; the log fails.
        """
        writer = self.writer
        if writer is None:
            writer = self.writer = self._warm(chain, first_sequence, last, hint)
        elif (spare := self.due(writer)) is not None:
            writer = self._roll(chain, writer, spare, last, hint)
        return writer

    def begin_segment(self, chain: SegmentChain, first_sequence: int, last: OpId, hint: int) -> None:
        """Begin a new segment. The segment before it takes no more entries.

        Raises:
            StorageError: as ``Files``.
        """
        sequence = chain.segments[-1].header.sequence + 1 if chain.segments else first_sequence
        size = self._context.config.segment_bytes_first
        path = self._new_segment_path()
        file = make_file(self._context.files, path, size)
        self._rolls = 0
        self.writer = self._adopt(chain, file, path, sequence, last, hint, size)

    def seal(self, chain: SegmentChain) -> None:
        """Close the active segment; all its groups are durable on return.

        A segment that recovery left open is closed too. Otherwise its index would stay in memory, and the next start
        would scan it again."""
        self.drop_spare()
        writer, self.writer = self.writer, None
        if writer is None and chain.segments and not chain.segments[-1].closed:
            segment = chain.segments[-1]
            assert segment.index is not None, "an open segment has its index in memory"
            file = self._context.files.open(segment.path, writable=True)
            writer = self._writer(file, segment, segment.index, segment.end)
        if writer is not None:
            self._seal(writer)

    def park(self) -> None:
        """Close the handle and give up the prepared file. The segment takes entries again later."""
        self.drop_spare()
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.park()

    def abandon(self) -> None:
        """Close the handle and give up the prepared file. Changes nothing in the segment."""
        self.drop_spare()
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.abandon()

    def drop_spare(self) -> None:
        """Remove the file that is prepared for the next segment, and the files that are kept for later ones."""
        self._give_up_spare()
        self.space.drop()

    def keep(self, segment: Segment) -> bool:
        """Keep the file of a collected segment without readers, if it can be used again; return whether it was kept."""
        if self.writer is None:
            return False
        return self.space.keep(segment, self.writer, self._context.config.segment_bytes(self._rolls + 1))

    # -- opening and rolling ---------------------------------------------------------------------

    def _warm(self, chain: SegmentChain, first_sequence: int, last: OpId, hint: int) -> SegmentWriter:
        """Open the last segment again if it is open or small, else begin a new one."""
        self._rolls = 0
        segment = chain.segments[-1] if chain.segments else None
        size = self._context.config.segment_bytes_first
        small = segment is not None and segment.footer and segment.end < size // 2
        if segment is None or (segment.closed and not small) or not self.space.continues(segment):
            self.begin_segment(chain, first_sequence, last, hint)
            assert self.writer is not None
            return self.writer
        file = self._context.files.open(segment.path, writable=True)
        try:
            index = self._reopened(segment, file)
        except StorageError:
            file.close()
            raise
        return self._writer(file, segment, index, max(size, segment.end))

    def _reopened(self, segment: Segment, file: File) -> SegmentIndex:
        """Return the index of a segment that takes entries again, after its footer was removed durably."""
        if segment.summary is None:
            assert segment.index is not None, "an index is in memory or in the footer"
            return segment.index
        index = load_footer(file, segment, segment.summary)
        with self._lock:
            segment.mark_open(index)
        file.truncate(segment.end)
        file.sync()
        return index

    def _writer(
        self, file: File, segment: Segment, index: SegmentIndex, target: int, *, prewritten: bool = False
    ) -> SegmentWriter:
        config = self._context.config
        early = config.prewritten(config.segment_bytes(self._rolls + 1))
        prepare_from = target // 2 if early else -(-3 * target // 4)
        return self.space.writer(file, segment, index, target, prepare_from, prewritten=prewritten)

    def _new_segment_path(self) -> str:
        nonce = self._context.nonces.draw(f"{self._log}/new")
        return f"{self._directory}/{new_segment_name(self._log.generation, nonce)}"

    def _seal(self, writer: SegmentWriter) -> None:
        footer = writer.seal()
        with self._lock:
            writer.segment.mark_closed(writer.index.summary() if footer else None)

    def due(self, writer: SegmentWriter) -> SpareFile | None:
        """Request the next file in time; return it when it is ready and the active segment is full."""
        if writer.end < writer.prepare_from:
            return None
        spare = self._spare
        if spare is None or spare.failed:
            self._request(writer, spare)
            return None
        return spare if spare.ready and writer.end >= writer.target else None

    def _request(self, writer: SegmentWriter, failed: SpareFile | None) -> None:
        """Request the next file. After a failure, wait until another quarter of a segment was appended."""
        if failed is not None:
            self._give_up_spare()
            self._retry_at = writer.end + writer.target // 4
        if writer.end < self._retry_at:
            return
        self._retry_at = 0
        size = self._context.config.segment_bytes(self._rolls + 1)
        self._spare = self.space.prepare(self._new_segment_path(), size, writer)
        self._spare.request(self._context.workers)

    def _give_up_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.give_up()
            self.space.give_up()

    def _roll(
        self, chain: SegmentChain, writer: SegmentWriter, spare: SpareFile, last: OpId, hint: int
    ) -> SegmentWriter:
        self.writer = self._spare = None
        file = spare.take()
        assert file is not None, "the file is ready, and only this log takes it"
        space = self.space.adopt(spare)
        try:
            self._seal(writer)
        except (OSError, StorageError):
            discard(self._context.files, file, spare.path)
            raise
        self._rolls += 1
        sequence = writer.segment.header.sequence + 1
        size = space.end if space.sectors else spare.size
        self.writer = self._adopt(chain, file, spare.path, sequence, last, hint, size, space, spare=True)
        return self.writer

    def _adopt(
        self,
        chain: SegmentChain,
        file: File,
        path: str,
        sequence: int,
        last: OpId,
        hint: int,
        size: int,
        space: ReusedSpace = NEW_SPACE,
        *,
        spare: bool = False,
    ) -> SegmentWriter:
        """Do steps 2 and 3 of the module's description; ``spare``: a worker has prepared the file."""
        files = self._context.files
        before = chain.segments[-1] if chain.segments else None
        header = self._header(before, sequence, last, hint, space)
        name = f"{self._directory}/{segment_name(self._log.generation, sequence)}"
        try:
            file.pwritev([header.encode()], 0)
            file.sync()
            file.close()
            files.rename(path, name)
            files.sync_directory(self._directory)
        except (OSError, StorageError):
            discard(files, file, path)
            raise
        index = SegmentIndex(last.index + 1, header.data_start, hint)
        segment = Segment(name, header, index)
        prewritten = spare and not space.sectors and self._context.config.prewritten(size)
        writer = self._writer(files.open(name, writable=True), segment, index, size, prewritten=prewritten)
        with self._lock:
            if before is not None:
                before.closed = True
            chain.add(segment, TermRuns())
        return writer

    def _header(
        self, before: Segment | None, sequence: int, last: OpId, hint: int, space: ReusedSpace
    ) -> SegmentHeader:
        return SegmentHeader(
            log=self._log,
            sequence=sequence,
            nonce=self._context.nonces.draw(f"{self._log}/{sequence}"),
            previous=last,
            previous_nonce=before.header.nonce if before else 0,
            previous_end=before.end if before else 0,
            commit_hint=hint,
            space=space,
        )
