"""The columnar store under the kernel's own flush: superblock, log and blocks go together, wherever power is lost."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.ids import OpId
from stelae.spi.store import ApplyEntry, ApplyResult
from stelae_store_columnar import ColumnarStore
from tests.conformance.test_store_columnar import tiny
from tests.unit.host.test_flush_and_collect import LAYOUT, LOG, TABLET, Node, ids


class Counting(ColumnarStore):
    """Notes what it is given to apply."""

    applied_indexes: list[int]

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        self.__dict__.setdefault("applied_indexes", []).extend(entry.op_id.index for entry in entries)
        return super().apply(entries)


class ColumnarNode(Node):
    """One replica's log, store and flusher on a virtual disk."""

    def __init__(self, disk: VirtualDisk) -> None:
        super().__init__(disk)
        self.engines = dataclasses.replace(self.engines, store=Counting, store_config=tiny())


def test_a_restart_applies_only_what_was_not_flushed() -> None:
    node = ColumnarNode.create()
    node.run(60, frozenset({20, 40}), [])
    assert node.file.load().flushed == OpId(1, 40)
    assert 0 < node.wal.logs()[LOG].base.index <= 40
    store = ColumnarNode(node.disk.clone()).recovered().store
    assert isinstance(store, Counting)
    assert store.applied_indexes == [*range(41, 61)]


def test_files_that_were_written_in_vain_are_removed_at_the_next_start() -> None:
    node = ColumnarNode.create()
    node.run(20, frozenset({10}), [])
    stray = f"{LAYOUT.data_of(TABLET)}/00000099"
    for name in (stray + ".parquet", stray + ".index", stray + ".notes"):
        node.disk.create(name).close()
    names = node.disk.listdir(LAYOUT.data_of(TABLET))
    after = ColumnarNode(node.disk.clone())
    assert ids(after.recovered()) == [*range(1, 21)]
    left = after.disk.listdir(LAYOUT.data_of(TABLET))
    assert sorted(set(names) - set(left)) == ["00000099.index", "00000099.parquet"]


@pytest.mark.parametrize("seed", range(2))
def test_power_lost_at_any_operation_loses_nothing_durable_and_repeats_nothing(seed: int) -> None:
    flush_at = frozenset({6, 9, 12})
    clean = ColumnarNode.create()
    clean.run(15, flush_at, [])
    begun = ColumnarNode.create().disk.faults.operations
    for number in range(begun, clean.disk.faults.operations):
        node = ColumnarNode.create()
        durable: list[int] = []
        node.disk.faults.lose_power_after(operations=number - node.disk.faults.operations)
        with suppress(PowerLost):
            node.run(15, flush_at, durable)
        after = ColumnarNode(node.disk.crash(random.Random(seed * 1000 + number)))
        found = after.recovered()
        present = ids(found)
        assert present == [*range(1, len(present) + 1)]
        assert len(present) >= max(durable, default=0)
        assert found.superblock.flushed.index <= found.log.last.index
        after.run(15, frozenset({14}), [])
        assert ids(ColumnarNode(after.disk.clone()).recovered()) == [*range(1, 16)]
