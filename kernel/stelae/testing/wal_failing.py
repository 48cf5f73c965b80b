"""A disk on which one call fails: the n-th of some kind, counted over all files.

It stands between an engine and any ``Files``, the machine's or a virtual disk. A check lets the first call fail, then
the second, and so on, until none is left to fail: so it meets every place in which an engine depends on a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stelae.spi.errors import Full, StorageError
from stelae.spi.services import Files

READS = frozenset({"open", "listdir", "exists", "read_bytes", "pread"})
"""Calls that a disk refuses which cannot be read now; opening is refused for want of handles or memory, too."""

WRITES = frozenset({"create", "make_directory", "replace", "rename", "pwritev", "preallocate", "truncate"})
"""Calls that a full disk refuses."""


def cannot_read(path: str) -> StorageError:
    """As the machine's disk says that a call failed which may succeed the next time."""
    return StorageError("cannot read: Input/output error", path=path)


def no_space(path: str) -> StorageError:
    """As the machine's disk says that it is full."""
    return Full("no space: No space left on device", path=path)


class FailingFiles:
    """``files``, on which one call fails: that which comes behind ``after`` others of its kind.

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
        """Say whether the call was made that fails."""
        return self._after is None or self.calls > self._after

    def heal(self) -> None:
        """Let nothing fail from now on."""
        self._after = None

    def passed(self, name: str, path: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, which fails if it is its turn."""

        def counted(*arguments: Any, **options: Any) -> Any:
            if name in self._kind:
                self.calls += 1
                if self._after is not None and self.calls == self._after + 1:
                    raise self._error(path or str(arguments[0]))
            found = call(*arguments, **options)
            return _FailingFile(self, found) if name in ("open", "create") else found

        return counted

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.passed(name, "", getattr(self._files, name))


class _FailingFile:
    def __init__(self, files: FailingFiles, file: Any) -> None:
        self._files = files
        self._file = file
        self.path: str = file.path

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._files.passed(name, self.path, getattr(self._file, name))
