"""The contents of a directory as a value."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec


class DiskImage(msgspec.Struct, frozen=True):
    """All directories and files below one directory. Paths are relative to it and begin with ``/``."""

    directories: tuple[str, ...] = ()
    files: dict[str, bytes] = {}

    @classmethod
    def of(cls, root: str) -> DiskImage:
        """Read a directory of this machine."""
        directories: list[str] = []
        files: dict[str, bytes] = {}
        for folder, names, plain in os.walk(root):
            names.sort()
            inside = folder.removeprefix(root)
            directories += [f"{inside}/{name}" for name in names]
            for name in sorted(plain):
                files[f"{inside}/{name}"] = Path(folder, name).read_bytes()
        return cls(tuple(directories), files)

    def write(self, root: str) -> None:
        """Create a directory of this machine with these contents. It must not exist."""
        os.makedirs(root)
        for path in self.directories:
            os.makedirs(f"{root}{path}", exist_ok=True)
        for path, data in self.files.items():
            Path(f"{root}{path}").write_bytes(data)

    def digest(self) -> bytes:
        """Return a digest that is equal for equal images."""
        found = hashlib.sha256()
        for path in sorted(self.directories):
            found.update(b"d%s\0" % path.encode())
        for path, data in sorted(self.files.items()):
            found.update(b"f%s\0%d\0" % (path.encode(), len(data)))
            found.update(data)
        return found.digest()

    def difference(self, other: DiskImage, ignored: frozenset[str] = frozenset()) -> str:
        """Return how another image differs, or an empty text.

        Args:
            other: the other image.
            ignored: names of files whose contents may differ.
        """
        if set(self.directories) != set(other.directories):
            return f"directories {sorted(set(self.directories) ^ set(other.directories))}"
        if set(self.files) != set(other.files):
            return f"names {sorted(set(self.files) ^ set(other.files))}"
        for path, data in sorted(self.files.items()):
            if other.files[path] != data and path.rpartition("/")[2] not in ignored:
                pairs = enumerate(zip(data, other.files[path], strict=False))
                at = next((n for n, (one, two) in pairs if one != two), min(len(data), len(other.files[path])))
                return f"{path} from byte {at} on (of {len(data)} and {len(other.files[path])})"
        return ""
