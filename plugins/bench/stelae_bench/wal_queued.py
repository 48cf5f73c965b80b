"""What ``raw_crc`` writes, behind the kernel's writer: what an engine can reach that does no more than any log must."""

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
    """Stands where an engine would, as far as the benchmark asks one, and is no log: nothing of it can be read.

    One write for each group, whatever logs its entries are of, with a header and a CRC32C for each entry. Every 64 MiB
    it reserves space for a file, while the group waits."""

    name: ClassVar[str] = CEILING
    Config: ClassVar[type[object]] = object

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._raw = RawCrc(directory)

    @classmethod
    def open(cls, directory: str, _config: object, _services: EngineServices) -> Self:
        """Begin in a directory that must not exist."""
        return cls(Path(directory))

    @classmethod
    def fast(cls) -> type[Self]:
        """Itself: its commits can be begun."""
        return cls

    def create(self, log: LogId, base: OpId) -> None:
        """Nothing: all logs share one file, in which nobody can tell them apart."""

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        """Write all bodies of a group; without a group, sync what was not."""
        if not group:
            self._raw.settle()
            return {}
        bodies = _bodies(group)
        self._raw.prepare(bodies)
        self._raw.write(bodies, sync=sync)
        return _outcomes(group)

    def begin(self, group: Mapping[LogId, Append]) -> Begun | None:
        """Begin to write all bodies of a group."""
        bodies = _bodies(group)
        self._raw.prepare(bodies)
        write = self._raw.write_of(bodies)

        def finish(failures: Sequence[StorageError | None]) -> dict[LogId, Outcome]:
            for failure in failures:
                if failure is not None:
                    raise failure
            self._raw.wrote(write)
            return _outcomes(group)

        return Begun((write,), finish)

    def collect(self, _log: LogId, _upto: int) -> None:
        """Nothing: a file goes when the next one is made."""

    def close(self) -> None:
        """Remove the file."""
        self._raw.close()


def _bodies(group: Mapping[LogId, Append]) -> list[bytes]:
    return [entry.body for append in group.values() for entry in append.entries]


def _outcomes(group: Mapping[LogId, Append]) -> dict[LogId, Outcome]:
    return {log: Durable(append.entries[-1].op_id) for log, append in group.items()}
