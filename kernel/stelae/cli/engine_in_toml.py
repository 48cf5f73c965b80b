"""Writes the name of an engine into a ``node.toml``, and leaves every other character of the file as it is."""

from __future__ import annotations

import os
import re
import shutil
import tomllib

from stelae.config.contracts import EngineKind
from stelae.config.source import ConfigSource
from stelae.host.atomic_replace import replace_file
from stelae.machine.files import RealFile, RealFiles
from stelae.spi.errors import StorageError


def set_engine(path: str, kind: EngineKind, name: str) -> bool:
    """Set the engine of a kind in the section ``[engines]`` of a file. The file is replaced atomically.

    Returns false, and changes nothing, if the file has no line with that key alone, or cannot be written."""
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    number = ConfigSource.parse(text, path).lines.get(("engines", kind.value))
    if number is None:
        return False
    lines = text.split("\n")
    key = rf"""(\s*(?:engines\s*\.\s*)?{kind.value}\s*=\s*)(?:"[^"]+"|'[^']+')"""
    lines[number - 1], count = re.subn(f"^{key}", lambda found: f'{found[1]}"{name}"', lines[number - 1])
    changed = "\n".join(lines)
    expected = tomllib.loads(text)
    expected["engines"][kind.value] = name
    if not count or tomllib.loads(changed) != expected:
        return False
    try:
        real = os.path.realpath(path)
        replace_file(_FilesLike(real), real, changed.encode())
    except (OSError, StorageError):
        return False
    return True


class _FilesLike(RealFiles):
    """The real disk. New files get the permissions of an existing one before they get contents.

    A file that cannot be renamed is removed, because nothing would remove it later."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._model = path

    def create(self, path: str) -> RealFile:
        """Create a file as ``RealFiles`` does."""
        file = super().create(path)
        shutil.copymode(self._model, path)
        return file

    def rename(self, source: str, target: str) -> None:
        """Rename a file as ``RealFiles`` does."""
        try:
            super().rename(source, target)
        except (OSError, StorageError):
            self.remove(source)
            raise
