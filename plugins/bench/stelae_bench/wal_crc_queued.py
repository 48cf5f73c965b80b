"""The writes of ``raw_crc`` behind the kernel's writer: the performance of an engine with only the necessary work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from stelae.spi.errors import StorageError
from stelae.spi.ids import LogId, OpId
from stelae.spi.services import EngineServices
from stelae.spi.wal import Append, Begun, Durable, Outcome
from stelae_bench.wal_cases import CEILING
from stelae_bench.wal_replay import RawCrc


class CrcQueued:
    """Has the methods of an engine that the benchmark calls. It is not a log: nothing can be read.

    Each group is one write, with entries of all logs, and each entry has a header and a CRC32C. Every 64 MiB it
    reserves the space of a new file, while the group waits."""

    name: ClassVar[str] = CEILING
    Config: ClassVar[type[object]] = object

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._raw = RawCrc(directory)

    @classmethod
    def open(cls, directory: str, _config: object, _services: EngineServices) -> Self:
        """Open in a directory that must not exist."""
        return cls(Path(directory))

    @classmethod
    def fast(cls) -> type[Self]:
        """Return this class: its commits can be begun."""
        return cls

    def create(self, log: LogId, base: OpId) -> None:
        """Do nothing: all logs share one file without any distinction."""

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Write all bodies of a group. Without a group, sync earlier writes."""
        if not group:
            self._raw.sync()
            return {}
        bodies = _bodies(group)
        self._raw.prepare(bodies)
        self._raw.write(bodies, sync=sync)
        return _outcomes(group)

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin a write of all bodies of a group."""
        bodies = _bodies(group)
        self._raw.prepare(bodies)
        write = self._raw.write_of(bodies)

        def finish(failures: Sequence[StorageError | None]) -> dict[LogId, Outcome]:
            for failure in failures:
                if failure is not None:
                    raise failure
            self._raw.advance(write)
            return _outcomes(group)

        return Begun((write,), finish)

    def collect(self, _log: LogId, _upto: int) -> None:
        """Do nothing: a file is removed when the next one is created."""

    def close(self) -> None:
        """Remove the file."""
        self._raw.close()


def _bodies(group: Mapping[LogId, Append]) -> list[bytes]:
    return [entry.body for append in group.values() for entry in append.entries]


def _outcomes(group: Mapping[LogId, Append]) -> dict[LogId, Outcome]:
    return {log: Durable(append.entries[-1].op_id) for log, append in group.items()}
