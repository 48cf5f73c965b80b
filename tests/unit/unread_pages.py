"""A virtual disk that does not return some pages of a file."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from stelae.sim.disk_file import VirtualFile
from stelae.spi.errors import StorageError

PAGE_BYTES = 4096


class UnreadPages:
    """The pages that no virtual disk returns, by the path of their file. Clear ``paths`` to repair the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: dict[str, Collection[int]] = {}
        original = VirtualFile.pread

        def pread(file: VirtualFile, size: int, offset: int) -> bytes:
            pages = range(offset // PAGE_BYTES, -(-(offset + size) // PAGE_BYTES))
            if any(page in self.paths.get(file.path, ()) for page in pages):
                raise StorageError("cannot read: Input/output error", path=file.path, offset=offset)
            return original(file, size, offset)

        monkeypatch.setattr(VirtualFile, "pread", pread)
