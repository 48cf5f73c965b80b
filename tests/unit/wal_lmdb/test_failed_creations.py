"""A creation that fails at its name, and whose removal fails too: it is removed before the log is created again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import pytest

from stelae.machine.files import RealFile
from stelae.spi.errors import Full
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append
from stelae.testing.wal_model import LOG, OTHER, Model, check_holds, commit, entries
from tests.conformance.lmdb_disk import FailingCommit, LmdbHarness, checks_here

FULL = lmdb.DiskError("mdb_txn_commit: No space left on device")
BOTH = list(entries(1, 3))


@pytest.fixture
def harness(tmp_path: Path) -> LmdbHarness:
    return LmdbHarness(str(tmp_path))


class Broken:
    """An engine whose creation of ``LOG`` has failed: there is space for its record, and none for what follows."""

    def __init__(self, harness: LmdbHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.harness = harness
        self.engine: Any = harness.open()
        self.commits = FailingCommit(self.engine._env._env, None)
        self.engine._env._env = self.commits
        self._full = True
        create = harness.disk.create

        def until_full(path: str) -> RealFile:
            if self._full and "/names/" in path:
                self.commits.error = FULL
                raise Full("no space", path=path)
            return create(path)

        monkeypatch.setattr(harness.disk, "create", until_full)
        with pytest.raises(Full):
            self.engine.create(LOG, ZERO)

    def free(self) -> None:
        """There is space again."""
        self._full, self.commits.error = False, None

    def records(self) -> int:
        """The number of keys besides the header and the entries of ``BOTH``."""
        with self.engine._env.read() as txn:
            return int(txn.stat()["entries"]) - 1 - len(BOTH)


def test_a_log_that_is_created_again_keeps_its_entries_over_a_restart(
    harness: LmdbHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of the failed creation had no name. The next start gave it the name of the log that was created
    later, and took it for that log: acknowledged entries were gone."""
    broken = Broken(harness, monkeypatch)
    broken.free()
    broken.engine.create(LOG, ZERO)
    commit(broken.engine, Append(entries=tuple(BOTH)))
    harness.crash(broken.engine)
    with checks_here():
        engine = harness.open()
    assert set(engine.logs()) == {LOG}
    check_holds(engine, Model(ZERO, BOTH))
    engine.close()


def test_what_a_failed_creation_left_is_removed_when_the_next_log_is_collected(
    harness: LmdbHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken(harness, monkeypatch)
    broken.free()
    broken.engine.create(OTHER, ZERO)
    commit(broken.engine, Append(entries=tuple(BOTH)), OTHER)
    assert broken.records() == 2
    broken.engine.collect(OTHER, 1)
    assert broken.records() == 0, "the record is gone, and one entry"
    broken.engine.close()
