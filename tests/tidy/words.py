"""Finds words in texts that make them hard to read. CONTRIBUTING and the glossary say how texts are written."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.tidy.tree import ROOT, files

PLACES = ("kernel", "plugins")
"""The folders whose modules are read: docstrings, comments, and all other texts, such as errors, log lines and help."""

WORDS = (
    r"nobody",
    r"whoever",
    r"lest",
    r"stands(?!\s+down)",
    r"so\s+many",  # "this number of", "at most 8"
    r"(?:is|are|was|were|be|been|being)\s+told",  # "gets the error", "knows"
    r"tak(?:e|es|en|ing)\s+(?:(?:it|them)\s+)?back",  # "undo", "drop"
    r"took\s+(?:(?:it|them)\s+)?back",
    r"what(?:ever)?\s+(?:has\s+)?(?:came|comes|becomes|became|become)\s+of",  # "the outcome of"
    r"sisters?",
    r"such\s+(?:a\s+)?one",
    r"in\s+the\s+order\s+of\s+(?:its|their)\s+begin",  # "ordered by start time"
    r"befalls?",
    r"founding",  # "bootstrap"
    r"in\s+office",
    r"roads?",
    r"the\s+way\s+round",
    r"sees?\s+to\s+(?:it|that|the)",
    r"holds?\s+up\s+nothing",
    r"for\s+so\s+long(?!\s+that)",
    r"(?:from\s+which\s+on|on\s+from\s+which)",  # "the first"
)
"""The comment names the plain word where it is not obvious."""

PATTERN = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)


def found_in(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each of these. ``line``: that of the begin of the text."""
    for match in PATTERN.finditer(text):
        yield line + text.count("\n", 0, match.start()), " ".join(match[0].split())


def found_in_python(source: str) -> Iterator[tuple[int, str]]:
    """As :func:`found_in`, in the docstrings, comments and texts of a module. A constant without a space is no text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\s", node.value):
            yield from found_in(node.value, node.lineno)
    for line, comment in _comments(source):
        yield from found_in(comment, line)


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment with its first line. Comments on consecutive lines are one."""
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and token.start[0] != first + len(lines):
            yield first, "\n".join(lines)
            lines = []
        first = first if lines else token.start[0]
        lines.append(token.string.lstrip("#: "))
    if lines:
        yield first, "\n".join(lines)


def is_read(path: Path) -> bool:
    """Return whether the texts of a file are read: modules in ``PLACES``, and all pages, the changelog included."""
    return path.suffix == ".md" or (path.suffix == ".py" and path.parts[0] in PLACES)


@functools.cache
def found_in_files() -> tuple[str, ...]:
    """The places of these words in kernel, plugins and all pages."""
    found = []
    for path in filter(is_read, files()):
        text = (ROOT / path).read_text(encoding="utf-8")
        words = found_in_python(text) if path.suffix == ".py" else found_in(text)
        found += [f"{path}:{line}: {word}" for line, word in sorted(words)]
    return tuple(found)


def figures(found: Sequence[str]) -> dict[str, int]:
    """What the ratchet records."""
    return {"words_count": len(found)}
