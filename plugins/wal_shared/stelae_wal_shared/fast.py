"""The fast class of the engine, for ``[log] fast = true``. The event loop begins commits, and groups are written as
whole blocks over the zeros of a prewritten segment. The files are the same. The plain engine does not import this
module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from stelae.spi.errors import StorageError
from stelae.spi.ids import LogId
from stelae.spi.services import Buffer, File
from stelae.spi.wal import Append, Begun, Outcome, Write
from stelae_shared.log_files.buffers import joined
from stelae_shared.log_files.whole_blocks import WholeBlocks
from stelae_wal_shared.commit import Committer, group_of
from stelae_wal_shared.engine import SharedEngine
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tail import LogTail
from stelae_wal_shared.writer import SharedWriter


class SharedBlockWriter(SharedWriter):
    """A ``SharedWriter`` that writes whole blocks over space that was written with zeros.

    Args:
        prewritten: the file was written with zeros.
    """

    __slots__ = ("_blocks",)

    def __init__(self, file: File, segment: SharedSegment, target: int, prepare_from: int, *, prewritten: bool) -> None:
        self._blocks = WholeBlocks(file, file.size()) if prewritten else None
        super().__init__(file, segment, target, prepare_from)

    def write_of(self, buffers: Sequence[Buffer], size: int) -> Write:
        """Return the durable write of a group at the end. Everything before is durable. Call ``wrote`` after it."""
        if self._blocks is not None:
            return self._blocks.write_of(buffers, self.end, size)
        return Write(self._file, joined(buffers), self.end)

    def wrote(self, write: Write, size: int) -> None:
        """Record that a group was written durably at the end."""
        self.synced = self.end + size
        self._moved(write, self.synced)

    def write(self, buffers: Sequence[Buffer], size: int, *, sync: bool) -> None:
        """Do what ``SharedWriter.write`` does."""
        if not sync or self.unsynced:
            # It would repeat bytes that are not durable yet, and a torn write could leave part of them.
            self._blocks = None
        if self._blocks is None:
            super().write(buffers, size, sync=sync)
            return
        write = self.write_of(buffers, size)
        self._file.pwritev(write.buffers, write.offset, dsync=True)
        self.wrote(write, size)

    def _moved(self, write: Write, end: int) -> None:
        if self._blocks is not None:
            self._blocks.wrote(write, end)
        self.end = end


class FastLogTail(LogTail):
    """A ``LogTail`` with writers of whole blocks. It can return the open segment without disk access."""

    def hot_writer(self, size: int) -> SharedBlockWriter | None:
        """Return what ``writer_for`` would, if that needs no disk access and all groups of the segment are durable."""
        writer = self.writer
        if writer is None or writer.unsynced or not writer.has_claimed(size):
            return None
        if writer.end + size >= writer.prepare_from:
            self._prepare(writer)
            if writer.end + size > writer.room and self._spare is not None and self._spare.ready:
                return None
        assert isinstance(writer, SharedBlockWriter), "this tail makes no other writers"
        return writer

    def _new_writer(
        self, file: File, segment: SharedSegment, target: int, prepare_from: int, *, prewritten: bool
    ) -> SharedWriter:
        return SharedBlockWriter(file, segment, target, prepare_from, prewritten=prewritten)


class FastCommitter(Committer):
    """A ``Committer`` whose commits can be begun."""

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a commit with one write for all its logs, if no append is refused and the segment need not roll."""
        outcomes: dict[LogId, Outcome] = {}
        accepted, size = self._accept(group, outcomes)
        tail = self._tail
        assert isinstance(tail, FastLogTail), "the fast engine makes no other tail"
        writer = tail.hot_writer(size) if accepted and not outcomes else None
        if writer is None:
            return None
        records = group_of(writer, accepted)
        write = writer.write_of(records.buffers(), records.size)

        def finish(failures: Sequence[StorageError | None]) -> dict[LogId, Outcome]:
            self.groups += 1
            (failure,) = failures
            if failure is None:
                writer.wrote(write, records.size)
                self._wrote(writer, records, accepted, size, True, outcomes)
            else:
                self._fail(accepted, failure, outcomes, self.close_full_segment)
            return outcomes

        return Begun((write,), finish)


class FastSharedWal(SharedEngine):
    """The engine with begun commits. The file formats are the same."""

    _tail_type: ClassVar[type[LogTail]] = FastLogTail
    _committer_type: ClassVar[type[Committer]] = FastCommitter

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a commit that is one write at the end of the open segment."""
        assert isinstance(self._committer, FastCommitter), "this engine makes no other committer"
        return self._committer.begin(group)
