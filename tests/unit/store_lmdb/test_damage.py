"""A value damaged under a running store: what flushes and compaction read of it is an error that names the file.

The kernel condemns a replica whose store reports ``Corrupt``, whatever step found it. So each step that reads must
report it, and must change nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stelae.spi.errors import Corrupt
from stelae.testing.conformance.store_harness import upsert
from stelae_store_lmdb import LmdbStore
from stelae_store_lmdb.format import HIDING
from stelae_store_lmdb.keys import ROOT, head_of
from tests.conformance.lmdb_store import LmdbHarness, LmdbReplica, tiny
from tests.unit.store_lmdb.test_space import env_of

VERSIONS = head_of(ROOT)
"""The first bytes of the keys of versions whose row keys are short."""


@pytest.fixture
def replica(tmp_path: Path) -> LmdbReplica:
    """Twenty rows that were all written twice, flushed, with a floor above both times."""
    replica = LmdbHarness(LmdbStore, tiny, root=str(tmp_path)).replica()
    replica.insert(*((n, f"first {n}", n) for n in range(20)))
    replica.flush()
    replica.write(upsert(*((n, f"second {n}", n) for n in range(20))))
    replica.flush()
    replica.store.set_history_floor(10 * len(replica.log))
    return replica


def damage_values(replica: LmdbReplica, prefix: bytes) -> None:
    """Change the last byte of each value whose key begins with ``prefix``, in all pages of the file that have it."""
    with env_of(replica).read() as txn:
        values = [bytes(value) for key, value in txn.cursor() if bytes(key).startswith(prefix)]
    assert values
    data = replica.data.read_bytes()
    with replica.data.open("r+b") as file:
        for value in values:
            places = [found.start() for found in re.finditer(re.escape(value), data)]
            assert places
            for at in places:
                file.seek(at + len(value) - 1)
                file.write(bytes([value[-1] ^ 1]))


def test_compaction_reports_a_damaged_list_of_hidden_versions_and_removes_nothing(replica: LmdbReplica) -> None:
    before = replica.rows()
    damage_values(replica, HIDING)
    with pytest.raises(Corrupt, match=r"data\.mdb.*checksum"):
        replica.store.compact()
    assert replica.rows() == before


def test_compaction_reports_a_damaged_version_and_removes_nothing(replica: LmdbReplica) -> None:
    with env_of(replica).read() as txn:
        before = {bytes(key) for key, _ in txn.cursor()}
    damage_values(replica, VERSIONS)
    with pytest.raises(Corrupt, match=r"data\.mdb.*checksum"):
        replica.store.compact()
    with env_of(replica).read() as txn:
        assert {bytes(key) for key, _ in txn.cursor()} == before


def test_a_flush_that_also_compacts_reports_damage_and_keeps_what_was_to_be_flushed(replica: LmdbReplica) -> None:
    damage_values(replica, HIDING)
    replica.insert((100, "later", 100))
    with pytest.raises(Corrupt, match=r"data\.mdb.*checksum"):
        replica.store.flush()
    assert (100, "later", 100) in replica.rows()
