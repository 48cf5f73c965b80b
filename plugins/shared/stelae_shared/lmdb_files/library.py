"""The one door to py-lmdb: imported on first use, its errors given our types.

What LMDB reports falls into three groups, and who calls decides by the type alone: ``Full`` may pass,
``FutureVersion`` and ``Corrupt`` concern what stands in the file, and ``SyncFailed`` is whatever failed
while something was made durable, after which the file is not trusted any more."""

from __future__ import annotations

import errno
import os
from typing import Any

from stelae.spi.errors import Corrupt, Full, FutureVersion, StorageError, SyncFailed
from stelae.spi.extras import require

MODULE, EXTRA = "lmdb", "lmdb"

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_FULL = ("MapFullError", "DiskError", "MemoryError", "TxnFullError", "ReadersFullError")
_OTHER_FORMAT = "LMDB data format v"  #: So py-lmdb 3 says itself, before LMDB sees the file.
_SYSTEM = ("DiskError", "MemoryError", "LockError", "ReadonlyError", "InvalidParameterError", "ReadersFullError")
_CORRUPT = (
    "CorruptedError",
    "PageNotFoundError",
    "InvalidError",
    "BadChecksumError",
    "CursorFullError",
    "IncompatibleError",
)


def library(wanted_by: str) -> Any:
    """The module ``lmdb``; ``MissingExtra`` names ``wanted_by``, an engine, if it is not installed."""
    return require(MODULE, extra=EXTRA, wanted_by=wanted_by)


def typed(error: Exception, path: str) -> StorageError:
    """Give an ``lmdb.Error``, raised about the data file at ``path``, its type."""
    kind = type(error).__name__
    if kind in _FULL or any(_is(error, number) for number in _NO_SPACE):
        return Full(f"no space: {error}", path=path)
    if kind == "VersionMismatchError" or _OTHER_FORMAT in str(error):
        return FutureVersion(f"another version of LMDB wrote this file: {error}", path=path)
    if kind in _CORRUPT:
        return Corrupt(f"LMDB finds its own structure broken: {error}", path=path, offset=0)
    return SyncFailed(f"LMDB failed: {error}", path=path)


def map_refused(error: Exception) -> bool:
    """Say whether the system did not grant a map of that size."""
    return type(error).__name__ == "MemoryError" or _is(error, errno.ENOMEM)


def of_the_system(error: Exception) -> bool:
    """Say whether the system refused a call, rather than LMDB what stands in the file: trying again may help."""
    kind, said = type(error).__name__, str(error)
    return kind in _SYSTEM or (kind == "Error" and "MDB_" not in said and _OTHER_FORMAT not in said)


def _is(error: Exception, number: int) -> bool:
    """Older releases of py-lmdb carry the error number in their text only."""
    return getattr(error, "code", None) == number or os.strerror(number) in str(error)
