"""Begun commits leave the bytes that commits leave: what changes behind their back is looked at once, for both."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.spi.ids import ZERO
from stelae.spi.wal import Append, WalEngine
from stelae.testing.begun_commits import with_begun_commits
from stelae.testing.conformance.wal_collection import BODY_BYTES, GROUPS
from stelae.testing.conformance.wal_damage import LAST_GROUPS
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, OTHER, commit, entries, entry
from stelae_wal_segmented.fast import FastSegmentedWal
from stelae_wal_shared.fast import FastSharedWal
from tests.conformance import test_wal_segmented, test_wal_shared, used_space

Trees = list[dict[str, bytes]]


def _trees(engine_type: type[WalEngine], config: Any) -> tuple[Trees, int]:
    """What stood on the disk after each of some histories and at moments within, and how many commits were begun."""
    begun, trees = 0, []

    class Counting(engine_type):  # type: ignore[misc, valid-type]
        def begin(self, group: Any) -> Any:
            nonlocal begun
            found = super().begin(group)
            begun += found is not None
            return found

    for last in LAST_GROUPS:
        harness = VirtualHarness(Counting, config)
        engine = harness.open()
        for log in (LOG, OTHER):
            engine.create(log, ZERO)
        commit(engine, Append(entries=entries(1, 3)))
        commit(engine, Append(entries=(entry(4, 1, 0), entry(5, 1, 600)), commit_hint=3))
        given = Append(entries=entries(1, 40, size_bytes=30))
        engine.commit({LOG: last, OTHER: given}, sync=True)
        trees.append(harness.tree())
        for group in range(GROUPS):
            last_index = engine.logs()[LOG].last.index
            commit(engine, Append(entries=entries(last_index + 1, 1, term=4, size_bytes=BODY_BYTES)))
            if group % 4 == 0:
                engine.collect(LOG, last_index)
            if group % 10 == 0:
                trees.append(harness.tree())
        engine.close()
        trees.append(harness.tree())
    return trees, begun


@pytest.mark.parametrize(
    ("engine_type", "config", "used"),
    [
        (FastSegmentedWal, test_wal_segmented.SMALL, False),
        (used_space.InUsedSpace, used_space.SMALL, True),
        (FastSharedWal, test_wal_shared.SMALL, False),
    ],
)
def test_begun_commits_leave_the_bytes_of_commits(
    engine_type: type[WalEngine], config: Any, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if used:
        used_space.plant(monkeypatch)
    committed, none = _trees(engine_type, config)
    begun, many = _trees(with_begun_commits(engine_type), config)
    assert none == 0
    assert many > 100
    assert begun == committed
