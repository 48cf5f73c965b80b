"""Texts: nothing in the tree is tied to one machine, and nothing is left half done."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files

_HOMES = "|".join(["home/[^/]+", "Users/[^/]+", "root", "work", "opt", "mnt"])
RULES = {
    "an absolute path of one machine": re.compile(rf"(?<![\w.}}~-])/(?:{_HOMES})/[\w.]"),
    "a package index": re.compile(
        r"(?:extra-)?index[-_]url|find[-_]links|trusted[-_]host|pypi\.[a-z]+/simple|pythonhosted", re.IGNORECASE
    ),
    "a folder outside the repository": re.compile(r"\.\./shared\b"),
    "unfinished work": re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X{3})\b|NotImplemented" r"Error"),
    "a test that is let off": re.compile(r"mark\.(?:skip|xfail|flaky)|pytest\.(?:skip|xfail)\("),
}
SKIPS_BY_CAPABILITY = "kernel/stelae/testing/"
"""Conformance suites skip what an engine declares not to do, and print it; nobody else skips."""


def violations(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in RULES.items():
            if what == "a test that is let off" and path.startswith(SKIPS_BY_CAPABILITY):
                continue
            if pattern.search(line):
                yield f"{path}:{number}: {what}: {line.strip()[:80]}"


def test_no_file_speaks_of_one_machine_or_of_unfinished_work() -> None:
    this = Path(__file__).relative_to(ROOT)
    found = []
    for path in files():
        if path != this:
            text = (ROOT / path).read_bytes().decode(errors="replace")
            found += violations(path.as_posix(), text)
    assert not found, "\n".join(found)


def test_text_files_end_with_a_newline_and_have_no_trailing_space() -> None:
    found = []
    for path in files():
        if path.suffix in {".py", ".md", ".toml", ".txt", ".json"}:
            data = (ROOT / path).read_bytes()
            if data and (not data.endswith(b"\n") or re.search(rb"[ \t]+$", data, re.MULTILINE)):
                found.append(str(path))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "see /home/me/stelae",
        "cd /work/main",
        "pip install --index-url https://x",
        "cp ../shared/design .",
        "x = 1  # TODO later",
        "raise NotImplementedError",
        "@pytest.mark.skip",
    ],
)
def test_a_line_that_does_not_belong_is_found(line: str) -> None:
    assert len(list(violations("kernel/stelae/host/x.py", line))) == 1


@pytest.mark.parametrize("line", ["docs/work/x", "~/work/x", "a path such as /dir/host", "/tmp/x"])
def test_an_ordinary_line_passes(line: str) -> None:
    assert not list(violations("docs/x.md", line))
