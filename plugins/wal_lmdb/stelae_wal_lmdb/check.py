"""The program of the child process: it reads the complete environment and reports damaged logs."""

from __future__ import annotations

from typing import Any

import msgspec

from stelae.spi.errors import Corrupt
from stelae_shared.lmdb_files import child
from stelae_wal_lmdb.environment import WANTED_BY, offset_in_map
from stelae_wal_lmdb.format import HEADER_KEY, decode_header
from stelae_wal_lmdb.walk import walk


class EnvironmentFinding(msgspec.Struct, frozen=True):
    """A log that is not what its record says; as ``walk.LogFlaw``."""

    number: int
    last_good: tuple[int, int]
    offset: int
    detail: str


class EnvironmentReport(child.ChildReport, frozen=True):
    """The report of the child: the environment is broken or newer, or these logs are damaged."""

    findings: tuple[EnvironmentFinding, ...] = ()


def check(directory: str) -> EnvironmentReport:
    """Check the environment in a directory. May kill the process."""
    return child.check(directory, WANTED_BY, _contents, EnvironmentReport)


def _contents(txn: Any, path: str) -> EnvironmentReport:
    header = txn.get(HEADER_KEY)
    if header is None:
        if txn.stat()["entries"]:
            raise Corrupt("the header of the environment is missing", path=path, offset=0)
        return EnvironmentReport()
    decode_header(header, path)
    flaws = walk(txn, offset_in_map, bodies=True).flaws.values()
    return EnvironmentReport(
        findings=tuple(EnvironmentFinding(one.number, one.last_good, one.offset, one.detail) for one in flaws)
    )


if __name__ == "__main__":
    child.main(check)
