"""Ten bugs that a log engine or its writer may have: each is planted in every engine, and a named check finds it.

The tests of the engines plant them and see the check fail. Here it is held that none is missing, and that the
page on conformance prints exactly this table."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stelae.testing.conformance.wal import WalConformance, WalNative
from tests.conformance import test_wal_lmdb_bugs, test_wal_segmented, test_wal_shared

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/conformance.md"

PLANTED: dict[str, dict[str, Any]] = {
    "segmented": dict(test_wal_segmented.BUGS),
    "lmdb": {**test_wal_lmdb_bugs.BUGS, **test_wal_lmdb_bugs.CHILD_BUGS},
    "shared": dict(test_wal_shared.BUGS),
}
"""Every planted bug of an engine's tests, by its name there."""

BUGS: dict[str, dict[str, str]] = {
    "acknowledged before the sync": {
        "segmented": "commit returns before the sync",
        "lmdb": "commit returns before the sync",
        "shared": "commit returns before the sync",
    },
    "a failed sync is repeated once": {
        "segmented": "a failed sync is repeated once",
        "lmdb": "a failed sync is repeated once",
        "shared": "a failed sync is repeated once",
    },
    "a directory is not synced": {
        "segmented": "the name of a new segment is not synced",
        "lmdb": "no directory is synced",
        "shared": "the name of a new segment is not synced",
    },
    "checksums are not checked": {
        "segmented": "bodies are not checked",
        "lmdb": "bodies are not checked",
        "shared": "bodies are not checked",
    },
    "a replaced suffix comes back": {
        "segmented": "a replacement does not void earlier segments",
        "lmdb": "a replacement leaves what was behind it",
        "shared": "a move brings a replaced suffix back",
    },
    "stale space is used again": {
        "segmented": "a stale segment is recycled",
        "lmdb": "a log gets the number of one whose entries are still there",
        "shared": "a stale segment is recycled",
    },
    "collection goes past its bound": {
        "segmented": "collection takes what is above",
        "lmdb": "collection takes what is above",
        "shared": "segments go that are needed",
    },
    "the base op id is forgotten": {
        "segmented": "the base is not durable before removal",
        "lmdb": "the base is not recorded when entries go",
        "shared": "the base is not durable before removal",
    },
    "an error of one log fails its neighbours": {
        "segmented": "a log that is refused fails its neighbours",
        "lmdb": "a log that is refused fails its neighbours",
        "shared": "a log that is refused fails its neighbours",
    },
    "an error reaches the first waiter only": {
        "segmented": "of those who wait the first is told",
        "lmdb": "of those who wait the first is told",
        "shared": "of those who wait the first is told",
    },
}
"""For each of the ten, what it is called among the planted bugs of each engine."""


def check_of(bug: str, engine: str) -> Callable[..., None]:
    """The check that has to find a bug in an engine."""
    check: Callable[..., None] = PLANTED[engine][BUGS[bug][engine]].check
    return check


def table() -> list[str]:
    """The table of the page on conformance: one row for each bug, one column for each engine."""
    lines = [f"| planted bug | {' | '.join(f'`{engine}`' for engine in PLANTED)} |", "|---" * (len(PLANTED) + 1) + "|"]
    for bug in BUGS:
        checks = [f"`{check_of(bug, engine).__name__.removeprefix('test_')}`" for engine in PLANTED]
        lines.append(f"| {bug} | {' | '.join(checks)} |")
    return lines


@pytest.mark.parametrize("engine", PLANTED)
@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_is_planted_in_every_engine_and_looked_for_by_the_suite(bug: str, engine: str) -> None:
    check = check_of(bug, engine)
    suite = WalNative if engine == "lmdb" else WalConformance
    own = test_wal_lmdb_bugs.LmdbChecks if engine == "lmdb" else WalConformance
    assert getattr(suite, check.__name__, None) is check or getattr(own, check.__name__, None) is check


def test_the_page_on_conformance_prints_this_table() -> None:
    found = re.findall(r"^\|.*\|$", PAGE.read_text().partition("### Planted bugs")[2], re.MULTILINE)
    assert found[: len(table())] == table(), "the table is:\n" + "\n".join(table())


if __name__ == "__main__":
    print("\n".join(table()))
