"""What the child process runs: read the whole environment, and say what is wrong with it.

A file that was cut kills whoever reads it through its map with SIGBUS, and a flipped bit in a page
header can lead LMDB anywhere. Here that ends a child instead of a node. It reads only, and takes no
lock: its parent holds the node's directory.

First the structure is checked, page by page: every page reachable once, none both free and in use. The
library's own verifier does it where there is one (py-lmdb 3), else a compacting copy to nowhere, which
visits every page in use. Then every checksum is verified."""

from __future__ import annotations

import importlib
import os
import sys

import msgspec

from stelae.spi.errors import FutureVersion, StorageError
from stelae_store_lmdb.environment import DATA_NAME, MAP_BYTES_MIN
from stelae_store_lmdb.format import HEADER_KEY, decode_header, opened_value
from stelae_store_lmdb.library import library, typed

_PROBLEMS_MAX = 3


class Report(msgspec.Struct, frozen=True):
    """What the child found. ``broken`` says why the environment is of no use, if so.

    ``newer`` says that a newer release wrote it, which is no damage."""

    broken: str = ""
    newer: str = ""


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
            if header is not None:
                decode_header(header, path)
            for key, value in txn.cursor():
                if bytes(key) != HEADER_KEY:
                    opened_value(bytes(key), value, path)
        return Report()
    except lmdb.Error as error:
        return _refusal(typed(error, path))
    except StorageError as error:
        return _refusal(error)
    finally:
        if env is not None:
            env.close()


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
