"""The files of a log's segments, and what all logs of an engine share.

Here each segment gets a new file. ``stelae_wal_segmented.fast`` uses the files of collected segments again. The plain
engine reads a segment in such a file like any other, but does not append to it: see ``SegmentSpace.continues``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from stelae.spi.services import File, Files, Workers
from stelae_shared.log_files.spare_file import SpareFile
from stelae_wal_segmented.config import SegmentedConfig
from stelae_wal_segmented.format import NEW_SPACE
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.marker import NonceSource
from stelae_wal_segmented.sectors import ReusedSpace
from stelae_wal_segmented.segment import Segment
from stelae_wal_segmented.writer import SegmentWriter


class SegmentSpace:
    """Prepares the file of the next segment, and makes the writer of a segment.

    One caller at a time: see ``stelae.spi.wal``.

    Args:
        context: what all logs of the engine share.
        directory: of the log.
    """

    def __init__(self, context: SegmentedContext, directory: str) -> None:
        self._context = context
        self._directory = directory

    def prepare(self, path: str, size: int, writer: SegmentWriter) -> SpareFile:
        """Return the future file of the next segment, which a worker is to make.

        Args:
            path: path of the file.
            size: length of the file in bytes.
            writer: writer of the active segment.
        """
        return SpareFile(self._context.files, path, size, prewritten=self._context.config.prewritten(size))

    def give_up(self) -> None:
        """Forget the file that is being prepared."""

    def adopt(self, spare: SpareFile) -> ReusedSpace:
        """Return what the header of the new segment says about the prepared file. The log has taken the file."""
        return NEW_SPACE

    def writer(
        self,
        file: File,
        segment: Segment,
        index: SegmentIndex,
        target: int,
        prepare_from: int,
        *,
        prewritten: bool = False,
    ) -> SegmentWriter:
        """Return the writer of a segment; ``prewritten``: its file was written with zeros."""
        return SegmentWriter(file, segment, index, target, prepare_from)

    def continues(self, segment: Segment) -> bool:
        """Say whether the log may append to a segment that recovery found.

        It may not append to a segment in a re-used file, because groups there end in another way. The log begins a new
        segment behind it."""
        return not segment.header.space.sectors

    def keep(self, segment: Segment, writer: SegmentWriter, size: int) -> bool:
        """Keep the file of a collected segment without readers, if it can be used again; return whether it was kept.

        The caller removes a file that was not kept.

        Args:
            segment: the collected segment.
            writer: writer of the active segment.
            size: length of the segment that would be prepared next.
        """
        return False

    def drop(self) -> None:
        """Remove all kept files."""

    def figures(self) -> dict[str, float]:
        """Return figures of this log, which ``stats`` adds up over all logs."""
        return {}


SpaceOfLog: TypeAlias = "Callable[[SegmentedContext, str], SegmentSpace]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedContext:
    """What all logs of an engine share."""

    files: Files
    workers: Workers
    config: SegmentedConfig
    nonces: NonceSource
    #: Makes the ``SegmentSpace`` of a log.
    space: SpaceOfLog = field(default=SegmentSpace)
