"""Finds the line of each key of a TOML document. ``tomllib`` gives values but no positions.

It works on documents that ``tomllib`` has accepted, so it checks nothing. A property test compares it with ``tomllib``:
both find the same keys in every document.
"""

from __future__ import annotations

import re
import tomllib
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys from the root down; the position within an array is an ``int``."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""")
_TEXT = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


def locate(text: str) -> dict[Path, int]:
    """Return the 1-based line on which each table, key and array element first appears."""
    walker = _TomlWalker(text.replace("\r\n", "\n"))
    walker.document()
    return walker.lines


class _TomlWalker:
    """Walks through a document once and notes the line of each key."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._arrays: dict[Path, int] = {}
        self.lines: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        self._skip(_BLANK)
        while self._at < len(self._text):
            if self._take("[["):
                table = self._header(in_array=True)
                self._take("]]")
            elif self._take("["):
                table = self._header(in_array=False)
                self._take("]")
            else:
                self._pair(table)
            self._skip(_BLANK)

    def _header(self, *, in_array: bool) -> Path:
        line = self._here()
        keys = self._keys()
        path: Path = ()
        for position, key in enumerate(keys):
            path = (*path, key)
            self.lines.setdefault(path, line)
            count = self._arrays.get(path, 0)
            if in_array and position == len(keys) - 1:
                self._arrays[path] = count = count + 1
            if count:
                path = (*path, count - 1)
                self.lines.setdefault(path, line)
        return path

    def _pair(self, table: Path) -> None:
        line = self._here()
        path = table
        for key in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._skip(_SPACE)
        self._take("=")
        self._skip(_SPACE)
        self._value(path)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip(_SPACE)
            keys.append(_key_of(self._skip(_KEY)))
            self._skip(_SPACE)
            if not self._take("."):
                return keys

    def _value(self, path: Path) -> None:
        if self._take("["):
            self._array(path)
        elif self._take("{"):
            self._inline_table(path)
        elif self._text[self._at] in "\"'":
            self._skip(_TEXT)
        else:
            self._skip(_SCALAR)

    def _array(self, path: Path) -> None:
        index = 0
        self._skip(_BLANK)
        while not self._take("]"):
            self.lines[(*path, index)] = self._here()
            self._value((*path, index))
            self._skip(_BLANK)
            self._take(",")
            self._skip(_BLANK)
            index += 1

    def _inline_table(self, path: Path) -> None:
        self._skip(_BLANK)
        while not self._take("}"):
            self._pair(path)
            self._skip(_BLANK)
            self._take(",")
            self._skip(_BLANK)

    def _take(self, token: str) -> bool:
        if self._text.startswith(token, self._at):
            self._at += len(token)
            return True
        return False

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise AssertionError(f"not TOML at character {self._at}: tomllib had accepted it")
        self._at = found.end()
        return found[0]

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line


def _key_of(written: str) -> str:
    if written[0] in "\"'":
        return str(tomllib.loads(f"key = {written}")["key"])
    return written
