"""The size of a directory on disk."""

from __future__ import annotations

from stelae.spi.services import Files


def bytes_below(files: Files, path: str) -> int:
    """Return the bytes of all files below a path. Blocks.

    Files that do not exist, or are removed meanwhile, are not counted."""
    try:
        names = files.listdir(path)
    except FileNotFoundError:
        return 0
    except NotADirectoryError:
        return _length(files, path)
    return sum(bytes_below(files, f"{path}/{name}") for name in names)


def _length(files: Files, path: str) -> int:
    try:
        file = files.open(path)
    except FileNotFoundError:
        return 0
    try:
        return file.size()
    finally:
        file.close()
