"""Writes groups without an engine, by bare loops. The groups have the sizes that the writer formed for an engine."""

from __future__ import annotations

import itertools
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import crc32c

from stelae.machine.files import RealFile, RealFiles
from stelae.spi.wal import Write
from stelae_bench.wal_cases import Bodies, SyncMode, SyncPace
from stelae_bench.wal_samples import WalSample

FILE_BYTES = 64 << 20
"""The length of a file of the bare loops, like that of a full segment. Reserving its space is not timed."""

BUFFERS_MAX = 1024
"""The most buffers of a vectored write. More bodies are joined, so that a group is one write."""

_ZEROS = bytes(1 << 20)
_HEADER = struct.Struct("<QQQBII")


class GroupReplay(ABC):
    """Makes groups of entries durable, one after the other.

    Work between groups or slots, for which no append waits, is not timed."""

    name: ClassVar[str]

    @abstractmethod
    def prepare(self, bodies: Sequence[bytes]) -> None:
        """Allocate space for the next group. Not timed."""

    @abstractmethod
    def write(self, bodies: Sequence[bytes], *, sync: bool = True) -> None:
        """Write one group. With ``sync`` it and all earlier ones are durable on return. Timed."""

    @abstractmethod
    def free_space(self) -> None:
        """Free space after a slot. Not timed."""

    @abstractmethod
    def close(self) -> None:
        """Close files. Closing twice is harmless."""


def replay(
    target: GroupReplay, groups: Sequence[int], bodies: Bodies, seconds: float, mode: SyncMode = SyncMode.ALWAYS
) -> WalSample:
    """Write groups of these sizes in turn until the sum of their times reaches ``seconds``.

    The latency of an entry is the time of its group, because no group waits for an earlier one.
    """
    spent_s = cpu_s = 0.0
    latencies_us: list[float] = []
    written: list[int] = []
    commits_us: list[float] = []
    pace = SyncPace(mode, 0.0)
    for count in itertools.cycle(groups):
        some = bodies.some(count)
        target.prepare(some)
        cpu_began, began = time.process_time(), time.perf_counter()
        target.write(some, sync=pace.due(spent_s))
        took_s = time.perf_counter() - began
        cpu_s += time.process_time() - cpu_began
        spent_s += took_s
        latencies_us.extend(itertools.repeat(took_s * 1e6, count))
        written.append(count)
        commits_us.append(took_s * 1e6)
        if spent_s >= seconds:
            break
    if mode is not SyncMode.ALWAYS:
        last = bodies.some(1)
        target.prepare(last)
        target.write(last, sync=True)
    return WalSample(seconds=spent_s, cpu_s=cpu_s, latencies_us=latencies_us, groups=written, commits_us=commits_us)


class Raw(GroupReplay):
    """One synchronous vectored write for each group, in reserved space.

    Args:
        directory: the directory for the files; it must exist.
    """

    name = "raw"
    header_bytes: ClassVar[int] = 0

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = RealFiles()
        self._file: RealFile | None = None
        self._offset = 0
        self._reserved = 0
        self._number = 0
        self._unsynced = False

    def prepare(self, bodies: Sequence[bytes]) -> None:
        size = sum(map(len, bodies)) + len(bodies) * self.header_bytes
        if self._offset + size > self._reserved:
            self.close()
            self._number += 1
            self._file = self._files.create(str(self._directory / f"{self.name}-{self._number}.data"))
            self._reserved = max(FILE_BYTES, size)
            self._file.preallocate(self._reserved)
            self._fill(self._file, self._reserved)
            self._file.sync()
            self._files.sync_directory(str(self._directory))

    def write(self, bodies: Sequence[bytes], *, sync: bool = True) -> None:
        assert self._file is not None
        self._offset += self._file.pwritev(_joined(bodies), self._offset, dsync=sync and not self._unsynced)
        if sync and self._unsynced:
            self._file.sync()
        self._unsynced = not sync

    def sync(self) -> None:
        """Sync everything that was written."""
        if self._file is not None and self._unsynced:
            self._file.sync()
            self._unsynced = False

    def _fill(self, file: RealFile, size: int) -> None:
        """Prepare the space of a new file. Does nothing here: it is already reserved."""

    def free_space(self) -> None:
        self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._files.remove(self._file.path)
            self._file = None
        self._offset = self._reserved = 0
        self._unsynced = False


class RawWritten(Raw):
    """Like ``Raw``, in space that was written with zeros before, as in a busy log of our engines."""

    name = "raw_written"

    def _fill(self, file: RealFile, size: int) -> None:
        for offset in range(0, size, len(_ZEROS)):
            file.pwritev([memoryview(_ZEROS)[: size - offset]], offset)


class RawCrc(Raw):
    """Like ``Raw``, with a header before each entry that has a CRC32C of the body."""

    name = "raw_crc"
    header_bytes = _HEADER.size

    def write(self, bodies: Sequence[bytes], *, sync: bool = True) -> None:
        super().write(self.packed(bodies), sync=sync)

    def packed(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Return the bodies, each after its header."""
        buffers: list[bytes] = []
        for number, body in enumerate(bodies):
            buffers.append(_HEADER.pack(1, number, number, 2, len(body), crc32c.crc32c(body)))
            buffers.append(body)
        return buffers

    def write_of(self, bodies: Sequence[bytes]) -> Write:
        """Return the durable write of the next group, for which ``prepare`` was called. ``advance`` must follow it."""
        assert self._file is not None
        return Write(self._file, _joined(self.packed(bodies)), self._offset)

    def advance(self, write: Write) -> None:
        """Move to the end of a write that was performed."""
        self._offset += sum(map(len, write.buffers))


def _joined(buffers: Sequence[bytes]) -> Sequence[bytes]:
    """Return the same bytes in at most ``BUFFERS_MAX`` buffers."""
    return buffers if len(buffers) <= BUFFERS_MAX else [b"".join(buffers)]
