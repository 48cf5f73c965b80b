"""An engine of segments all of which stand in space that something else has left, as those of a busy log do."""

from __future__ import annotations

import random
from contextlib import closing
from typing import Any, ClassVar

import pytest

from stelae.spi.errors import StorageError
from stelae.spi.ids import OpId
from stelae.spi.services import Files
from stelae.testing.conformance.wal_basics import ALWAYS_SYNCED
from stelae_wal_segmented import SegmentedConfig
from stelae_wal_segmented.active_segment import ActiveSegment
from stelae_wal_segmented.fast import FastSegmentedWal
from stelae_wal_segmented.fast.kept_files import KeptFile, KeptFiles, ReusedFile
from stelae_wal_segmented.names import parse
from stelae_wal_segmented.segment import SegmentChain

SMALL = SegmentedConfig(segment_bytes_first=4096, segment_bytes_max=8192, prewrite_bytes_min=4096)


class InUsedSpace(FastSegmentedWal):
    """Each of its segments stands in used space, once ``plant`` was called. There every commit is synced."""

    capabilities: ClassVar[frozenset[str]] = FastSegmentedWal.capabilities | {ALWAYS_SYNCED}


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every segment begin in a file full of something, as if that were a collected one."""
    monkeypatch.setattr(ActiveSegment, "begin_segment", _begin_segment)
    monkeypatch.setattr(KeptFiles, "take", _take)


def _take(self: Any) -> KeptFile | None:
    try:
        return KeptFile(_left_over(self._files, self._directory, 8192 + 100), None)
    except StorageError:
        return None  # No disk refuses what is there already.


def _left_over(files: Files, directory: str, size: int) -> str:
    """A file of a collected segment; no byte of it is zero."""
    taken = [parsed.sequence for name in files.listdir(directory) if (parsed := parse(name)) and parsed.sequence]
    path = f"{directory}/g1-{max(900_000_000_000, *taken, 0) + 1}.reuse"
    rng = random.Random(len(taken))
    with closing(files.create(path)) as file:
        try:
            file.pwritev([rng.randbytes(size).replace(b"\0", b"\1")], 0)
        except StorageError:
            files.remove(path)
            raise
    return path


def _begin_segment(self: Any, chain: SegmentChain, first_sequence: int, last: OpId, hint: int) -> None:
    """As ``ActiveSegment.begin_segment``, in used space."""
    context = self._context
    sequence = chain.segments[-1].header.sequence + 1 if chain.segments else first_sequence
    size = context.config.segment_bytes_first
    path = self._new_segment_path()
    used = ReusedFile(context.files, KeptFile(_left_over(context.files, self._directory, size + 100), None), path, size)
    file = used.make(lambda: True)
    self._rolls = 0
    self.writer = self._adopt(chain, file, path, sequence, last, hint, used.space.end, used.space)
