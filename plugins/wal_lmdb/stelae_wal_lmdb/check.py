"""What the child process runs: read the whole environment, and say what is wrong with it.

A file that was cut kills whoever reads it through its map with SIGBUS, and a flipped bit in a page
header can lead LMDB anywhere. Here that ends a child instead of a node. It reads only, and takes no
lock: its parent holds the directory.

First the structure is checked, page by page: every page reachable once, none both free and in use. The
library's own verifier does it where there is one (py-lmdb 3), else a compacting copy to nowhere, which
visits every page in use. Then every checksum is verified."""

from __future__ import annotations

import importlib
import os
import sys

import msgspec

from stelae.spi.errors import Corrupt, FutureVersion, StorageError
from stelae_wal_lmdb.environment import DATA_NAME, MAP_BYTES_MIN, offset_in_map
from stelae_wal_lmdb.format import HEADER_KEY, decode_header
from stelae_wal_lmdb.library import library, typed
from stelae_wal_lmdb.walk import walk

_PROBLEMS_MAX = 3


class Finding(msgspec.Struct, frozen=True):
    """A log that is not what its record says; as ``walk.Flaw``."""

    number: int
    last_good: tuple[int, int]
    offset: int
    detail: str


class Report(msgspec.Struct, frozen=True):
    """What the child found. ``broken`` says why the environment is of no use at all, if so.

    ``newer`` says that a newer release wrote it, which is no damage."""

    broken: str = ""
    newer: str = ""
    findings: tuple[Finding, ...] = ()


def check(directory: str) -> Report:
    """Check the environment in a directory; may kill the process."""
    path = f"{directory}/{DATA_NAME}"
    problems = verified(path)
    if problems:
        more = f" (and {len(problems) - _PROBLEMS_MAX} more)" if len(problems) > _PROBLEMS_MAX else ""
        return Report(broken="; ".join(problems[:_PROBLEMS_MAX]) + more)
    lmdb = library()
    size = max(os.path.getsize(path), MAP_BYTES_MIN)
    env = None
    try:
        env = lmdb.open(directory, map_size=size, readonly=True, lock=False)
        if problems is None:
            with open(os.devnull, "wb") as nowhere:
                env.copyfd(nowhere.fileno(), compact=True)
        with env.begin(buffers=True) as txn:
            header = txn.get(HEADER_KEY)
            if header is None:
                if txn.stat()["entries"]:
                    raise Corrupt("the header of the environment is gone", path=path, offset=0)
                return Report()
            decode_header(header, path)
            found = walk(txn, offset_in_map, bodies=True)
    except lmdb.Error as error:
        return _refusal(typed(error, path))
    except StorageError as error:
        return _refusal(error)
    finally:
        if env is not None:
            env.close()
    flaws = found.flaws.values()
    return Report(findings=tuple(Finding(one.number, one.last_good, one.offset, one.detail) for one in flaws))


def _refusal(error: StorageError) -> Report:
    return Report(newer=error.fact) if isinstance(error, FutureVersion) else Report(broken=error.fact)


def verified(path: str) -> list[str] | None:
    """What the library's own verifier says of a file; ``None`` if the library has none."""
    try:
        verifier = importlib.import_module("lmdb.verify")
    except ImportError:
        return None
    try:
        return list(verifier.verify(path, subdir=False))
    except verifier.VerifyError as error:
        return [str(error)]


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(check(sys.argv[1])))
