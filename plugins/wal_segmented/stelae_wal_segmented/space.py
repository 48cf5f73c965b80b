"""The files that the segments of one log are made in: the plain way, a new file for each.

``stelae_wal_segmented.fast`` has the other way, which uses the files of collected segments again. A segment in such a
file is read here like any other, but not continued: see ``SegmentSpace.continues``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from stelae.spi.services import File, Files, Workers
from stelae_shared.log_files.spare import Spare
from stelae_wal_segmented.config import SegmentedConfig
from stelae_wal_segmented.format import NEW_SPACE
from stelae_wal_segmented.index import SegmentIndex
from stelae_wal_segmented.marker import NonceSource
from stelae_wal_segmented.sectors import UsedSpace
from stelae_wal_segmented.segment import Segment
from stelae_wal_segmented.writer import SegmentWriter


class SegmentSpace:
    """Prepares the file of the next segment, and makes the writer of a segment.

    One caller at a time: see ``stelae.spi.wal``.

    Args:
        setting: of the engine.
        directory: of the log.
    """

    def __init__(self, setting: Setting, directory: str) -> None:
        self._setting = setting
        self._directory = directory

    def prepare(self, path: str, size: int, writer: SegmentWriter) -> Spare:
        """Return the file that the next segment will be made in, for a worker to make.

        Args:
            path, size: of the file.
            writer: of the open segment.
        """
        return Spare(self._setting.files, path, size, prewritten=self._setting.config.prewritten(size))

    def give_up(self) -> None:
        """The prepared file is not wanted any more."""

    def adopt(self, spare: Spare) -> UsedSpace:
        """Say what the header of the segment says of the prepared file, which the log has taken."""
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

        Not in a re-used file: groups there end in another way, so the log begins a new segment behind it."""
        return not segment.header.space.sectors

    def keep(self, segment: Segment, writer: SegmentWriter, size: int) -> bool:
        """Say whether the file of a collected segment, which nobody reads, was kept; else the caller removes it.

        Args:
            size: of the segment that would be prepared next.
        """
        return False

    def drop(self) -> None:
        """Remove all files that are kept."""

    def figures(self) -> dict[str, float]:
        """Figures of this log, to be added up for ``stats``."""
        return {}


SpaceOfLog: TypeAlias = "Callable[[Setting, str], SegmentSpace]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all logs of an engine share; ``space`` makes the ``SegmentSpace`` of one of them."""

    files: Files
    workers: Workers
    config: SegmentedConfig
    nonces: NonceSource
    space: SpaceOfLog = field(default=SegmentSpace)
