"""The program of the child process: it reads the whole environment of a tablet and checks every checksum."""

from __future__ import annotations

from typing import Any

from stelae_shared.lmdb_files import child
from stelae_shared.lmdb_files.child import ChildReport
from stelae_store_lmdb.environment import WANTED_BY
from stelae_store_lmdb.format import HEADER_KEY, decode_header, verified_contents

__all__ = ["ChildReport", "check"]


def check(directory: str) -> ChildReport:
    """Check the environment in a directory. Damage may kill the process."""
    return child.check(directory, WANTED_BY, _contents, ChildReport)


def _contents(txn: Any, path: str) -> ChildReport:
    header = txn.get(HEADER_KEY)
    if header is not None:
        decode_header(header, path)
    for key, value in txn.cursor():
        if bytes(key) != HEADER_KEY:
            verified_contents(bytes(key), value, path)
    return ChildReport()


if __name__ == "__main__":
    child.main(check)
