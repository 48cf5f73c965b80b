"""The open end of a log: which segment takes the next group, and how one follows another.

A segment follows another like this. When the open one is three quarters full, a worker begins to
reserve the space of the next; when it is half full, if that space is also written with zeros, which
takes longer. Appends go on in the old one, however long that takes. Once it is ready and the old one is
full, the next append rolls:

1. The old segment gets its footer, is cut to its length and synced.
2. The new one gets its header, which says where the old one ends, and is synced.
3. The new one is renamed to its name, and the directory is synced.
4. The base file says, durably, that the new one is the newest (see ``TabletLog.append``).

A crash behind any step leaves a log that is whole: before 3 the new file means nothing, and before 4
it has no entries.
"""

from __future__ import annotations

import threading

from stelae.spi.errors import StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.services import File
from stelae_shared.log_files.spare import Spare, discard, make_file
from stelae_shared.log_files.term_runs import TermRuns
from stelae_wal_segmented.format import NEW_SPACE, SegmentHeader
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.names import segment_name, unborn_name
from stelae_wal_segmented.sectors import UsedSpace
from stelae_wal_segmented.segment import Chain, Segment, load_footer
from stelae_wal_segmented.space import Setting
from stelae_wal_segmented.writer import SegmentWriter


class OpenEnd:
    """Writer and spare segment of one log. One caller at a time: see ``stelae.spi.wal``.

    Args:
        lock: held while the chain changes.

    Attributes:
        writer: what takes entries now; ``None`` while the log is cold.
        space: the files that its segments are made in.
    """

    def __init__(self, setting: Setting, directory: str, log: LogId, lock: threading.Lock) -> None:
        self._setting = setting
        self._directory = directory
        self._log = log
        self._lock = lock
        self._spare: Spare | None = None
        self._retry_at = 0
        self._rolls = 0
        self.writer: SegmentWriter | None = None
        self.space = setting.space(setting, directory)

    @property
    def unsynced(self) -> bool:
        """Say whether something was written and not synced."""
        return self.writer is not None and self.writer.synced < self.writer.end

    def writer_for(self, chain: Chain, first_sequence: int, last: OpId, hint: int) -> SegmentWriter:
        """Return the segment that takes the next group, warming up or rolling as need be.

        Args:
            chain: the log's segments.
            first_sequence: number of the log's first segment, should it have none.
            last: op id of the last entry.
            hint: highest commit index known, for the header of a new segment.

        Raises:
            StorageError: there is none; the log fails.
        """
        writer = self.writer
        if writer is None:
            writer = self.writer = self._warm(chain, first_sequence, last, hint)
        elif (spare := self.due(writer)) is not None:
            writer = self._roll(chain, writer, spare, last, hint)
        return writer

    def fresh(self, chain: Chain, first_sequence: int, last: OpId, hint: int) -> None:
        """Begin a new segment behind whatever there is, which takes no more entries.

        Raises:
            StorageError: as ``Files``.
        """
        sequence = chain.segments[-1].header.sequence + 1 if chain.segments else first_sequence
        size = self._setting.config.segment_bytes_first
        path = self._unborn_path()
        file = make_file(self._setting.files, path, size)
        self._rolls = 0
        self.writer = self._adopt(chain, file, path, sequence, last, hint, size)

    def seal(self, chain: Chain) -> None:
        """Close the open segment for good, with all that was written to it durable.

        A segment that recovery left open is closed too: its index is in memory until then, and the
        next start would scan it again."""
        self.drop_spare()
        writer, self.writer = self.writer, None
        if writer is None and chain.segments and not chain.segments[-1].closed:
            segment = chain.segments[-1]
            assert segment.index is not None, "an open segment has its index in memory"
            file = self._setting.files.open(segment.path, writable=True)
            writer = self._writer(file, segment, segment.index, segment.end)
        if writer is not None:
            self._seal(writer)

    def park(self) -> None:
        """Keep neither handle nor spare space; the segment goes on taking entries later."""
        self.drop_spare()
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.park()

    def abandon(self) -> None:
        """Keep neither handle nor spare, and touch nothing of the segment."""
        self.drop_spare()
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.abandon()

    def drop_spare(self) -> None:
        """Give back the space reserved for the next segment, and files that are kept for later ones."""
        self._give_up_spare()
        self.space.drop()

    def keep(self, segment: Segment) -> bool:
        """Say whether the file of a segment was kept that is collected and that nobody reads."""
        if self.writer is None:
            return False
        return self.space.keep(segment, self.writer, self._setting.config.segment_bytes(self._rolls + 1))

    # -- one segment after another ---------------------------------------------------------------

    def _warm(self, chain: Chain, first_sequence: int, last: OpId, hint: int) -> SegmentWriter:
        """Go on in the last segment if it is small or open, else begin one."""
        self._rolls = 0
        segment = chain.segments[-1] if chain.segments else None
        size = self._setting.config.segment_bytes_first
        small = segment is not None and segment.footer and segment.end < size // 2
        if segment is None or (segment.closed and not small) or not self.space.continues(segment):
            self.fresh(chain, first_sequence, last, hint)
            assert self.writer is not None
            return self.writer
        file = self._setting.files.open(segment.path, writable=True)
        try:
            index = self._reopened(segment, file)
        except StorageError:
            file.close()
            raise
        return self._writer(file, segment, index, max(size, segment.end))

    def _reopened(self, segment: Segment, file: File) -> SegmentIndex:
        """Return the index of a segment that goes on, its footer cut away durably."""
        if segment.summary is None:
            assert segment.index is not None, "an index is in memory or in the footer"
            return segment.index
        index = load_footer(file, segment, segment.summary)
        with self._lock:
            segment.unsealed(index)
        file.truncate(segment.end)
        file.sync()
        return index

    def _writer(
        self, file: File, segment: Segment, index: SegmentIndex, target: int, *, prewritten: bool = False
    ) -> SegmentWriter:
        config = self._setting.config
        early = config.prewritten(config.segment_bytes(self._rolls + 1))
        prepare_from = target // 2 if early else -(-3 * target // 4)
        return self.space.writer(file, segment, index, target, prepare_from, prewritten=prewritten)

    def _unborn_path(self) -> str:
        nonce = self._setting.nonces.draw(f"{self._log}/new")
        return f"{self._directory}/{unborn_name(self._log.generation, nonce)}"

    def _seal(self, writer: SegmentWriter) -> None:
        footer = writer.seal()
        with self._lock:
            writer.segment.sealed(writer.index.summary() if footer else None)

    def due(self, writer: SegmentWriter) -> Spare | None:
        """Have the next segment prepared in time; return it once it is wanted and there."""
        if writer.end < writer.prepare_from:
            return None
        spare = self._spare
        if spare is None or spare.failed:
            self._request(writer, spare)
            return None
        return spare if spare.ready and writer.end >= writer.target else None

    def _request(self, writer: SegmentWriter, failed: Spare | None) -> None:
        """Have the next segment prepared; after a failure not before some more was appended."""
        if failed is not None:
            self._give_up_spare()
            self._retry_at = writer.end + writer.target // 4
        if writer.end < self._retry_at:
            return
        self._retry_at = 0
        size = self._setting.config.segment_bytes(self._rolls + 1)
        self._spare = self.space.prepare(self._unborn_path(), size, writer)
        self._spare.request(self._setting.workers)

    def _give_up_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.give_up()
            self.space.give_up()

    def _roll(self, chain: Chain, writer: SegmentWriter, spare: Spare, last: OpId, hint: int) -> SegmentWriter:
        self.writer = self._spare = None
        file = spare.take()
        assert file is not None, "it is ready, and nobody else takes it"
        space = self.space.adopt(spare)
        try:
            self._seal(writer)
        except (OSError, StorageError):
            discard(self._setting.files, file, spare.path)
            raise
        self._rolls += 1
        sequence = writer.segment.header.sequence + 1
        size = space.end if space.sectors else spare.size
        self.writer = self._adopt(chain, file, spare.path, sequence, last, hint, size, space, spare=True)
        return self.writer

    def _adopt(
        self,
        chain: Chain,
        file: File,
        path: str,
        sequence: int,
        last: OpId,
        hint: int,
        size: int,
        space: UsedSpace = NEW_SPACE,
        *,
        spare: bool = False,
    ) -> SegmentWriter:
        """Steps 2 and 3 of the module's description; ``spare``: a worker has prepared the file."""
        files = self._setting.files
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
        prewritten = spare and not space.sectors and self._setting.config.prewritten(size)
        writer = self._writer(files.open(name, writable=True), segment, index, size, prewritten=prewritten)
        with self._lock:
            if before is not None:
                before.closed = True
            chain.add(segment, TermRuns())
        return writer

    def _header(self, before: Segment | None, sequence: int, last: OpId, hint: int, space: UsedSpace) -> SegmentHeader:
        return SegmentHeader(
            log=self._log,
            sequence=sequence,
            nonce=self._setting.nonces.draw(f"{self._log}/{sequence}"),
            previous=last,
            previous_nonce=before.header.nonce if before else 0,
            previous_end=before.end if before else 0,
            commit_hint=hint,
            space=space,
        )
