"""Finds words in texts that make them hard to read. CONTRIBUTING and the glossary say how texts are written."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator, Sequence

from tests.tidy.tree import ROOT, files

PLACES = ("kernel", "plugins", "docs")
"""The folders whose docstrings, comments and pages are read. Error messages and tests are not."""

WORDS = re.compile(r"\b(?:nobody|whoever|lest|stands(?!\s+down))\b", re.IGNORECASE)


def found_in(text: str, line: int = 1) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of each of these words. ``line``: that of the begin of the text."""
    for match in WORDS.finditer(text):
        yield line + text.count("\n", 0, match.start()), match[0]


def found_in_python(source: str) -> Iterator[tuple[int, str]]:
    """As :func:`found_in`, in the docstrings and comments of a module; those of fields count, other strings do not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from found_in(node.value.value, node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from found_in(token.string, token.start[0])


@functools.cache
def found_in_files() -> tuple[str, ...]:
    """The places of these words in kernel, plugins and docs."""
    found = []
    for path in files():
        if path.parts[0] in PLACES and path.suffix in (".py", ".md"):
            text = (ROOT / path).read_text(encoding="utf-8")
            words = found_in_python(text) if path.suffix == ".py" else found_in(text)
            found += [f"{path}:{line}: {word}" for line, word in sorted(words)]
    return tuple(found)


def figures(found: Sequence[str]) -> dict[str, int]:
    """What the ratchet records."""
    return {"words_count": len(found)}
