"""The engine and its logs, with commits that are begun by the event loop and written by ``io_uring``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

from stelae.spi.errors import CallerError, StorageError
from stelae.spi.ids import LogId
from stelae.spi.wal import Append, Begun, Outcome, Write
from stelae_wal_segmented.engine import SegmentedWal
from stelae_wal_segmented.fast.noted import NotedPool
from stelae_wal_segmented.fast.reuse import ReusedSegments
from stelae_wal_segmented.fast.writer import SegmentedBlockWriter
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.space import SpaceOfLog

NOTED_BYTES_MAX = 32 << 20
"""Memory for digests of what was written, for all logs of an engine."""


class BegunAppend(NamedTuple):
    """An append of which one write is left.

    Attributes:
        write: that write.
        meanwhile: work that can be done while the disk writes.
        finish: gives the outcome, once the write is durable (``None``) or has failed with an error.
    """

    write: Write
    meanwhile: Callable[[], None]
    finish: Callable[[StorageError | None], Outcome]


class FastTabletLog(TabletLog):
    """A log whose appends can be begun. Threads as in ``TabletLog``."""

    def begin(self, append: Append) -> BegunAppend | None:
        """Begin one append of a commit with ``sync``, if it needs one write and nothing else of the disk."""
        writer = self._hot_writer()
        if writer is None or writer.segment.header.sequence > self.base.newest_sequence:
            return None
        if self._refusal(append) is not None:
            return None
        try:
            group = self._encode(writer, append)
        except CallerError:
            return None
        write = writer.begin(group)

        def finish(failure: StorageError | None) -> Outcome:
            if failure is not None:
                return self._fail(failure)
            writer.wrote(group, write)
            return self._written(writer, append, group, sync=True)

        return BegunAppend(write, lambda: writer.note(group, write), finish)

    def _hot_writer(self) -> SegmentedBlockWriter | None:
        """Return the open segment's writer, if it takes the next group without other disk access and all is durable."""
        writer = self.end.writer
        if writer is None or writer.synced < writer.end or self.end.due(writer) is not None:
            return None
        assert isinstance(writer, SegmentedBlockWriter), "the space of this log makes no other"
        return writer


class FastSegmentedWal(SegmentedWal):
    """``SegmentedWal`` with re-used segments and begun commits. The files are of the same format."""

    _log_type: ClassVar[type[TabletLog]] = FastTabletLog

    @classmethod
    def _space(cls) -> SpaceOfLog:
        return partial(ReusedSegments, NotedPool(NOTED_BYTES_MAX))

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a commit, one write for each log, if every log has an open segment and none has to roll."""
        appends: list[BegunAppend] = []
        for name, append in group.items():
            log = self._logs.get(name)
            begun = log.begin(append) if isinstance(log, FastTabletLog) else None
            if begun is None:
                return None
            appends.append(begun)

        def meanwhile() -> None:
            for begun in appends:
                begun.meanwhile()

        def finish(failures: Sequence[StorageError | None]) -> dict[LogId, Outcome]:
            self._count(group)
            found = zip(group, appends, failures, strict=True)
            return {name: begun.finish(failure) for name, begun, failure in found}

        return Begun([begun.write for begun in appends], finish, meanwhile) if appends else None

    def stats(self) -> dict[str, float]:
        """As of ``SegmentedWal``, with the files of collected segments that are kept, and how many segments were begun
        in such a file since the log was opened."""
        figures = super().stats()
        found = [log.end.space.figures() for log in list(self._logs.values())]
        return figures | {name: sum(one[name] for one in found) for name in ("segments_kept", "segments_reused")}
