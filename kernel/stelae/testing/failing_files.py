"""Files on which one call fails: the n-th of some kind, counted over all files.

They wrap any ``Files``, of the machine or of a virtual disk. A check lets the first call fail, then the second, and so
on until no call fails. So it reaches every place in which an engine depends on a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.spi.errors import Full, StorageError
from stelae.spi.services import Files

READS = frozenset({"open", "listdir", "exists", "read_bytes", "pread"})
"""Calls that fail on a disk that cannot be read now. ``open`` also fails without handles or memory."""

WRITES = frozenset({"create", "make_directory", "replace", "rename", "pwritev", "preallocate", "truncate"})
"""Calls that a full disk refuses."""


def cannot_read(path: str) -> StorageError:
    """Return the error of a call that failed and may succeed the next time."""
    return StorageError("cannot read: Input/output error", path=path)


def no_space(path: str) -> StorageError:
    """Return the error of a full disk."""
    return Full("no space: No space left on device", path=path)


class FailingFiles:
    """Wraps ``files``; one call fails.

    Args:
        files: the files to wrap.
        kind: names of the calls that are counted.
        after: how many calls of the kind succeed before the one that fails. Later calls succeed again.
        error: makes the error from the path.

    Attributes:
        calls: how many calls of the kind there were.
    """

    def __init__(self, files: Files, kind: frozenset[str], after: int, error: Callable[[str], StorageError]) -> None:
        self._files = files
        self._kind = kind
        self._after: int | None = after
        self._error = error
        self.calls = 0

    @property
    def failed(self) -> bool:
        """Say whether the failing call was made."""
        return self._after is None or self.calls > self._after

    def heal(self) -> None:
        """Let no call fail from now on."""
        self._after = None

    def wrap(self, name: str, path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call, wrapped so that it is counted and may fail."""

        def counted(*arguments: Any, **options: Any) -> Any:
            if name in self._kind:
                self.calls += 1
                if self._after is not None and self.calls == self._after + 1:
                    raise self._error(path or str(arguments[0]))
            found = call(*arguments, **options)
            return _FailingFile(self, found) if name in ("open", "create") else found

        return counted

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.wrap(name, "", getattr(self._files, name))


class _FailingFile:
    def __init__(self, files: FailingFiles, file: Any) -> None:
        self._files = files
        self._file = file
        self.path: str = file.path

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._files.wrap(name, self.path, getattr(self._file, name))
