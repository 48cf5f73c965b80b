"""The end of the node's log: which segment takes the next group, and how one follows another.

When the open segment is three quarters full, a worker reserves the space of the next one; when it is
half full, if that space is to be written with zeros, which takes longer. Appends go on in the old one,
however long that takes. Once the space is ready and the old segment is full:

1. Everything in the old segment is made durable. It gets its footer and is cut to its length.
2. The new one gets its head, with an image of all logs, and is synced.
3. It is renamed to its name, and the directory is synced.

A crash behind any step leaves a log that is whole: before 3 the new file means nothing. A segment
that failed, or that recovery has read, takes no more records: what follows begins a fresh one."""

from __future__ import annotations

from contextlib import suppress

from stelae.spi.errors import Full, StorageError
from stelae.spi.services import File, Workers
from stelae_shared.log_files.spare import Spare, discard, make_file
from stelae_wal_shared.book import Book
from stelae_wal_shared.config import SharedConfig
from stelae_wal_shared.footer import encode_footer
from stelae_wal_shared.head import encode_head, written_bytes
from stelae_wal_shared.index import SharedSegmentIndex
from stelae_wal_shared.marker import SharedMarker
from stelae_wal_shared.segment import SharedSegment, segment_path, unborn_path
from stelae_wal_shared.writer import SharedWriter

HEAD_SHARE = 8
"""A segment has so many times the room of what its head says, however many logs there are."""


class Tail:
    """One caller at a time: see ``stelae.spi.wal``.

    Attributes:
        writer: what takes records now; ``None`` while no segment is open.
    """

    def __init__(self, book: Book, config: SharedConfig, workers: Workers, marker: SharedMarker) -> None:
        self._book = book
        self._config = config
        self._workers = workers
        self._marker = marker
        self._spare: Spare | None = None
        self._retry_at = 0
        self._rolls = 0
        self.writer: SharedWriter | None = None

    def writer_for(self, size: int) -> SharedWriter:
        """Return what takes the next ``size`` bytes of entries, beginning another segment if need be.

        Raises:
            StorageError: there is none.
        """
        writer = self.writer
        if writer is None:
            return self.fresh()
        if writer.end + size >= writer.prepare_from:
            self._prepare(writer)
            if writer.end + size > writer.room and writer.end > writer.segment.start:
                return self._roll(writer)
        return writer

    def fresh(self) -> SharedWriter:
        """Begin a segment behind whatever there is.

        Raises:
            StorageError: as ``Files``; nothing has changed.
        """
        assert self.writer is None
        self.drop_spare()
        book, size = self._book, self._config.segment_bytes_first
        path = unborn_path(book.directory, self._marker.draw_nonce())
        try:
            file = make_file(book.files, path, size)
        except Full:
            # What little there is may do for what frees more.
            file = make_file(book.files, path, 0)
        self._rolls = 0
        return self._adopt(file, path, size)

    def sync(self) -> None:
        """Make everything durable.

        Raises:
            StorageError: it is not, and what was not durable is not to be trusted.
        """
        if self.writer is not None and self.writer.unsynced:
            self.writer.sync()
        self._book.settle()

    def seal(self, *, closing: bool = False) -> None:
        """Close the open segment; with ``closing``, so that the next start need not read it.

        Raises:
            StorageError: as ``sync``, and the segment is still open.
        """
        self.sync()
        writer, self.writer = self.writer, None
        if writer is not None:
            segment = writer.segment
            if writer.seal(self.footer_of(segment, closing=closing)):
                self._book.sealed(segment)
        if closing:
            self._note_end()

    def footer_of(self, segment: SharedSegment, *, closing: bool) -> bytes:
        """The footer of a segment whose index is in memory."""
        image = self._book.image(without=segment) if closing else b""
        assert segment.index is not None
        return encode_footer(segment.index, segment.entries, segment.end, segment.nonce, image)

    def distrust(self) -> None:
        """After a failed sync: let go of the open segment; only what was durable counts of it."""
        writer, self.writer = self.writer, None
        if writer is not None:
            writer.abandon()
            with self._book.lock:
                writer.segment.end = writer.synced
        self.drop_spare()

    def drop_spare(self) -> None:
        """Give back the space that is reserved for the next segment."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.give_up()

    def _note_end(self) -> None:
        """Have the marker say how long the newest segment is: what is cut from it later is no tail."""
        newest = max(self._book.segments.values(), key=lambda one: one.number, default=None)
        known = self._marker.newest, self._marker.newest_end
        if newest is not None and (newest.number, newest.end) > known:
            with suppress(StorageError):  # As with a footer: without it the older statement stands.
                self._marker.note_newest(newest.number, newest.end)

    # -- one segment after another ---------------------------------------------------------------

    def _prepare(self, writer: SharedWriter) -> None:
        """Have the next segment's space reserved; after a failure not before some more was appended."""
        spare = self._spare
        if spare is not None and spare.failed:
            self._spare = None
            self._retry_at = writer.end + writer.target // 4
        if self._spare is None and writer.end >= self._retry_at:
            self._retry_at = 0
            size = self._config.segment_bytes(self._rolls + 1)
            path = unborn_path(self._book.directory, self._marker.draw_nonce())
            self._spare = Spare(self._book.files, path, size, prewritten=self._config.prewritten(size))
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
            discard(self._book.files, file, spare.path)
            raise
        self._rolls += 1
        return self._adopt(file, spare.path, spare.size, prewritten=self._config.prewritten(spare.size))

    def _adopt(self, file: File, path: str, size: int, *, prewritten: bool = False) -> SharedWriter:
        """Steps 2 and 3 of the module's description; ``prewritten``: the file was written with zeros."""
        book = self._book
        number = book.newest + 1
        nonce = self._marker.draw_nonce()
        image = book.image()
        head = encode_head(number, nonce, image)
        target = max(size, len(head) + HEAD_SHARE * written_bytes(image))
        name = segment_path(book.directory, number)
        try:
            with suppress(Full):
                file.preallocate(target)
            file.pwritev([head], 0)
            file.sync()
            file.close()
            # From here on the number is used up, whatever becomes of the file.
            book.newest = number
            book.files.rename(path, name)
            book.files.sync_directory(book.directory)
            file = book.files.open(name, writable=True)
        except StorageError:
            discard(book.files, file, path)
            raise
        segment = SharedSegment(number, nonce, name, len(head), len(head))
        segment.index = SharedSegmentIndex()
        book.add(segment)
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
