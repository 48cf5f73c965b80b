"""Writes the name of an engine into a ``node.toml``, and leaves every other character of the file as it is."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tomllib

from stelae.config.contracts import EngineKind
from stelae.config.source import ConfigSource


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
        _replace(os.path.realpath(path), changed)
    except OSError:
        return False
    return True


def _replace(path: str, text: str) -> None:
    """Replace a file, with its permissions, so that a crash leaves the old or the new text."""
    beside = f"{path}.new"
    try:
        with open(beside, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(path, beside)
        os.replace(beside, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(beside)
