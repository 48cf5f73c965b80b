"""The fast engine and its logs: the event loop begins commits, and ``io_uring`` writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

from stelae.spi.errors import CallerError, StorageError
from stelae.spi.ids import LogId
from stelae.spi.wal import Append, Begun, Outcome, Write
from stelae_wal_segmented.engine import SegmentedEngine
from stelae_wal_segmented.fast.reused_segments import ReusedSegments
from stelae_wal_segmented.fast.write_digests import DigestPool
from stelae_wal_segmented.fast.writer import SegmentedBlockWriter
from stelae_wal_segmented.log import TabletLog
from stelae_wal_segmented.space import SpaceOfLog

NOTED_BYTES_MAX = 32 << 20
"""Memory for the digests of written sectors, over all logs of an engine."""


class BegunAppend(NamedTuple):
    """An append that needs only one more write.

    Attributes:
        write: the write.
        meanwhile: work that can be done while the disk writes.
        finish: returns the outcome. Called with ``None`` once the write is durable, or with the error of the write.
    """

    write: Write
    meanwhile: Callable[[], None]
    finish: Callable[[StorageError | None], Outcome]


class FastTabletLog(TabletLog):
    """A log whose appends can be begun. Threads as in ``TabletLog``."""

    def begin(self, append: Append) -> BegunAppend | None:
        """Begin one append of a commit with ``sync``, if it needs one write and no other disk access."""
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
        """Return the writer if it takes the next group without other disk access and all its groups are durable."""
        writer = self.active.writer
        if writer is None or writer.synced < writer.end or self.active.due(writer) is not None:
            return None
        assert isinstance(writer, SegmentedBlockWriter), "ReusedSegments makes no other writers"
        return writer


class FastSegmentedWal(SegmentedEngine):
    """The engine with re-used segment files and begun commits. The file formats are the same."""

    _log_type: ClassVar[type[TabletLog]] = FastTabletLog

    @classmethod
    def _space(cls) -> SpaceOfLog:
        return partial(ReusedSegments, DigestPool(NOTED_BYTES_MAX))

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a commit with one write for each log, if every log has an open segment and none has to roll."""
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
        """Return the figures of ``SegmentedEngine`` and two more.

        ``segments_kept`` counts the files of collected segments that are kept, and ``segments_reused`` the segments
        that were begun in such a file since the log was opened."""
        figures = super().stats()
        found = [log.active.space.figures() for log in list(self._logs.values())]
        return figures | {name: sum(one[name] for one in found) for name in ("segments_kept", "segments_reused")}
