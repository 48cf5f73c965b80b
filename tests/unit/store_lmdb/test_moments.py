"""Wherever its process dies, the store comes back as the superblock and the log say, and gives the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stelae_store_lmdb import LmdbStore
from stelae_store_lmdb.environment import Environment
from tests.conformance.lmdb_moments import lived
from tests.conformance.lmdb_store import LmdbHarness, checks_here, tiny


@pytest.fixture(autouse=True)
def _checked_here() -> Iterator[None]:
    with checks_here():
        yield


@pytest.mark.parametrize("seed", range(2))
def test_a_death_behind_any_transaction_or_step_changes_neither_rows_nor_answers(tmp_path: Path, seed: int) -> None:
    life = lived(LmdbHarness(LmdbStore, tiny, root=str(tmp_path)), seed, entries=14)
    ahead = 0
    for moment in life.moments:
        life.check(moment)
        ahead += moment.flushed.index < moment.entries
    assert ahead > 12
    assert any(moment.floor for moment in life.moments)


class Died(Exception):
    """The process, while it was starting."""


def test_taking_back_may_be_interrupted_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = lived(LmdbHarness(LmdbStore, tiny, root=str(tmp_path)), seed=4, entries=8)
    with life.noting():
        for _ in range(3):
            life.write()
            life.replica.store.flush()
    moment = life.moments[-1]
    inner = Environment.write
    twin = life.twin(moment)
    deaths = 0

    @contextmanager
    def write(env: Environment) -> Iterator[Any]:
        with inner(env) as txn:
            yield txn
        raise Died

    while deaths < 100:
        with monkeypatch.context() as patch:
            patch.setattr(Environment, "write", write)
            try:
                twin.open()
                break
            except Died:
                deaths += 1
    assert deaths > 2
    life.check(moment, twin)
