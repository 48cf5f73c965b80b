"""A directory as a value: what it holds, without what made it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec


class DiskImage(msgspec.Struct, frozen=True):
    """All directories and files below one directory, by paths that begin with ``/`` there."""

    directories: tuple[str, ...] = ()
    files: dict[str, bytes] = {}

    @classmethod
    def of(cls, root: str) -> DiskImage:
        """Read a directory of this machine."""
        directories: list[str] = []
        files: dict[str, bytes] = {}
        for place, names, plain in os.walk(root):
            names.sort()
            inside = place.removeprefix(root)
            directories += [f"{inside}/{name}" for name in names]
            for name in sorted(plain):
                files[f"{inside}/{name}"] = Path(place, name).read_bytes()
        return cls(tuple(directories), files)

    def write(self, root: str) -> None:
        """Make a directory of this machine, which does not exist, hold exactly this."""
        os.makedirs(root)
        for path in self.directories:
            os.makedirs(f"{root}{path}", exist_ok=True)
        for path, data in self.files.items():
            Path(f"{root}{path}").write_bytes(data)

    def digest(self) -> bytes:
        """Equal for equal images."""
        found = hashlib.sha256()
        for path in sorted(self.directories):
            found.update(b"d%s\0" % path.encode())
        for path, data in sorted(self.files.items()):
            found.update(b"f%s\0%d\0" % (path.encode(), len(data)))
            found.update(data)
        return found.digest()

    def difference(self, other: DiskImage, but_for: frozenset[str] = frozenset()) -> str:
        """Say how another image differs, the contents of files of certain names apart; empty if it does not."""
        if set(self.directories) != set(other.directories):
            return f"directories {sorted(set(self.directories) ^ set(other.directories))}"
        if set(self.files) != set(other.files):
            return f"names {sorted(set(self.files) ^ set(other.files))}"
        for path, data in sorted(self.files.items()):
            if other.files[path] != data and path.rpartition("/")[2] not in but_for:
                pairs = enumerate(zip(data, other.files[path], strict=False))
                at = next((n for n, (one, two) in pairs if one != two), min(len(data), len(other.files[path])))
                return f"{path} from byte {at} on (of {len(data)} and {len(other.files[path])})"
        return ""
