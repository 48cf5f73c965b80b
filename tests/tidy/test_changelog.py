"""Changelog fragments: named by what and kind, short, and about something."""

from __future__ import annotations

import re

from tests.tidy.tree import ROOT

KINDS = ("added", "changed", "fixed", "removed", "security")
NAME = re.compile(rf"[a-z0-9][a-z0-9-]*\.({'|'.join(KINDS)})\.md")
LINES_MAX = 5


def test_fragments_are_named_by_kind_and_hold_one_to_five_lines() -> None:
    found = sorted((ROOT / "changelog").glob("*/*"))
    assert found
    wrong = [
        path.name
        for path in found
        if not NAME.fullmatch(path.name)
        or not 1 <= len(path.read_text().strip().splitlines()) <= LINES_MAX
        or not path.read_text().strip()
    ]
    assert not wrong, f"expected <what>.<{'|'.join(KINDS)}>.md of 1 to {LINES_MAX} lines: {wrong}"
