"""Imports py-lmdb on first use, and converts its errors to typed errors.

A caller decides by the type alone. ``Full`` may pass. ``FutureVersion`` and ``Corrupt`` concern the contents of the
file. ``SyncFailed`` is any other failure while something was made durable. The file is not trusted afterwards."""

from __future__ import annotations

import errno
import os
from typing import Any

from stelae.spi.errors import Corrupt, Full, FutureVersion, StorageError, SyncFailed
from stelae.spi.extras import require

MODULE, EXTRA = "lmdb", "lmdb"

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_FULL = ("MapFullError", "DiskError", "MemoryError", "TxnFullError", "ReadersFullError")
_OTHER_FORMAT = "LMDB data format v"  #: In an error of py-lmdb 3 itself, before LMDB reads the file.
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
    """Return the module ``lmdb``. ``MissingExtra``: it is not installed; the error names the engine ``wanted_by``."""
    return require(MODULE, extra=EXTRA, wanted_by=wanted_by)


def typed(error: Exception, path: str) -> StorageError:
    """Return the typed error for an ``lmdb.Error`` about the data file at ``path``."""
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
    """Say whether the system refused a call, and not LMDB the contents of the file. Then a retry may help."""
    kind, said = type(error).__name__, str(error)
    return kind in _SYSTEM or (kind == "Error" and "MDB_" not in said and _OTHER_FORMAT not in said)


def _is(error: Exception, number: int) -> bool:
    """Say whether an error has this error number. Older releases of py-lmdb have it only in the text."""
    return getattr(error, "code", None) == number or os.strerror(number) in str(error)
