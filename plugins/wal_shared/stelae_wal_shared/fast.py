"""The fast kind of the engine, for ``[log] fast = true``: the event loop begins commits, and groups are written as
whole blocks over the zeros of a prewritten segment. The files are the same; the plain engine imports nothing of it."""

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
from stelae_wal_shared.engine import SharedWal
from stelae_wal_shared.segment import SharedSegment
from stelae_wal_shared.tail import Tail
from stelae_wal_shared.writer import SharedWriter


class SharedBlockWriter(SharedWriter):
    """As ``SharedWriter``. Over space that was written with zeros, it writes whole blocks.

    Args:
        prewritten: the file was written with zeros.
    """

    __slots__ = ("_blocks",)

    def __init__(self, file: File, segment: SharedSegment, target: int, prepare_from: int, *, prewritten: bool) -> None:
        self._blocks = WholeBlocks(file, file.size()) if prewritten else None
        super().__init__(file, segment, target, prepare_from)

    def write_of(self, buffers: Sequence[Buffer], size: int) -> Write:
        """The durable write of a group at the end, where all before it is durable; ``wrote`` follows it."""
        if self._blocks is not None:
            return self._blocks.write_of(buffers, self.end, size)
        return Write(self._file, joined(buffers), self.end)

    def wrote(self, write: Write, size: int) -> None:
        """The group is at the end, durably."""
        self.synced = self.end + size
        self._moved(write, self.synced)

    def write(self, buffers: Sequence[Buffer], size: int, *, sync: bool) -> None:
        """As ``SharedWriter.write``."""
        if not sync or self.unsynced:
            self._blocks = None  # It would repeat bytes that are not durable, and a tear could leave part of them.
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


class FastTail(Tail):
    """As ``Tail``, with writers of whole blocks, and a look at the open segment that needs no disk access."""

    def hot_writer(self, size: int) -> SharedBlockWriter | None:
        """Return what ``writer_for`` would, if that needs no disk access; all in it is durable then."""
        writer = self.writer
        if writer is None or writer.unsynced:
            return None
        if writer.end + size >= writer.prepare_from:
            self._prepare(writer)
            if writer.end + size > writer.room and self._spare is not None and self._spare.ready:
                return None
        assert isinstance(writer, SharedBlockWriter), "this tail makes no other"
        return writer

    def _new_writer(
        self, file: File, segment: SharedSegment, target: int, prepare_from: int, *, prewritten: bool
    ) -> SharedWriter:
        return SharedBlockWriter(file, segment, target, prepare_from, prewritten=prewritten)


class FastCommitter(Committer):
    """As ``Committer``, with commits that can be begun."""

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a commit, one write for all its logs, if none is refused and the segment need not roll."""
        outcomes: dict[LogId, Outcome] = {}
        accepted, size = self._accept(group, outcomes)
        tail = self._tail
        assert isinstance(tail, FastTail), "the engine makes no other"
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
                self._fail(accepted, failure, outcomes)
            return outcomes

        return Begun((write,), finish)


class FastSharedWal(SharedWal):
    """``SharedWal`` with begun commits. The files are of the same format."""

    _tail_type: ClassVar[type[Tail]] = FastTail
    _committer_type: ClassVar[type[Committer]] = FastCommitter

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a commit that is one write at the end of the open segment."""
        assert isinstance(self._committer, FastCommitter), "this engine makes no other"
        return self._committer.begin(group)
