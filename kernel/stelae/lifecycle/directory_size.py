"""How much of a disk a directory takes."""

from __future__ import annotations

from stelae.spi.services import Files


def bytes_below(files: Files, path: str) -> int:
    """Return the bytes of all files below a path; what goes meanwhile, or is not there, counts nothing. Blocks."""
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
