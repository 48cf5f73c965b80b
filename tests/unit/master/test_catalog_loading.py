"""A master that cannot read its catalog: it reads again, or its replica fails as that of any other tablet.

One read error of the disk failed the replica for good. Damage failed it too, but not as damaged rows, so no copy took
its place."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.host.read_faults import READ_ERRORS_MAX, ReadFaults
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.driver.catalog_loading import AGAIN_US, CatalogLoad
from stelae.spi.errors import Corrupt, Full, StorageError
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from tests.unit.master.driver_on_fakes import DriverOnFakes, EmptyCursor, ManualTurns

DISK = StorageError("input/output error", path="data/a", offset=4096)
DAMAGE = Corrupt("the checksum is wrong", path="data/a", offset=4096)
NO_HANDLES = Full("too many open files", path="data/a")


class World:
    """A load, and a store whose scans raise these errors, one after the other, and then succeed."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.scans = 0
        self.while_scanning: Callable[[], None] = lambda: None
        self.failures: list[str] = []
        self.handed_over: list[str] = []
        self.loaded: list[tuple[Catalog, list[Entry]]] = []
        self.turns = ManualTurns()
        self.applier = SimpleNamespace(applied=ZERO, store=SimpleNamespace(scan=self._scan))
        self.replica: Any = SimpleNamespace(
            applier=self.applier, failure="", fail=self.failures.append, read_faults=ReadFaults(self._fail, self._fail)
        )
        pool: Any = SimpleNamespace(run=self._run)
        turns: Any = self.turns
        self.load = CatalogLoad(
            self.replica, pool, turns, lambda catalog, entries: self.loaded.append((catalog, list(entries)))
        )
        self.load.start()

    def _fail(self, reason: str) -> None:
        self.replica.failure = reason

    def _scan(self, _spec: object) -> EmptyCursor:
        self.scans += 1
        self.while_scanning()
        if self.errors:
            raise self.errors.pop(0)
        return EmptyCursor()

    def _run(self, _key: str, work: Any, done: Any) -> None:
        try:
            result = work()
        except Exception as error:
            result = error
        self.turns.defer(lambda: done(result))

    def pass_pauses(self, count: int) -> None:
        self.turns.run(self.turns.now_us() + count * AGAIN_US)


@pytest.mark.parametrize("error", [DISK, NO_HANDLES])
def test_a_catalog_that_the_disk_does_not_return_is_read_again_after_a_pause(error: StorageError) -> None:
    world = World(error, error)
    world.pass_pauses(0)
    assert world.scans == 1 and not world.loaded
    world.pass_pauses(2)
    assert world.scans == 3 and len(world.loaded) == 1
    assert not world.replica.failure and not world.failures


def test_entries_that_were_applied_before_the_catalog_is_read_again_are_read_with_it() -> None:
    world = World(DISK)
    early, late = (Entry(OpId(1, index), EntryKind.NOOP, 0, b"") for index in (1, 2))
    world.load.applied([early])
    world.applier.applied = early.op_id
    world.pass_pauses(0)
    world.while_scanning = lambda: world.load.applied([late])
    world.pass_pauses(1)
    ((catalog, entries),) = world.loaded
    assert catalog.applied == early.op_id and entries == [late]


def test_a_disk_that_fails_many_reads_in_a_row_fails_the_replica() -> None:
    world = World(*[DISK] * (READ_ERRORS_MAX + 5))
    world.pass_pauses(READ_ERRORS_MAX + 5)
    assert world.scans == READ_ERRORS_MAX and not world.loaded
    assert f"failed {READ_ERRORS_MAX} reads in a row" in world.replica.failure and not world.failures


def test_damage_fails_the_replica_so_that_a_copy_takes_its_place() -> None:
    world = World(DAMAGE)
    world.pass_pauses(5)
    assert "data/a@4096" in world.replica.failure and world.scans == 1
    assert world.replica.read_faults.explain(world.replica.failure)


@pytest.mark.parametrize("error", [Corrupt("a record is malformed"), FileNotFoundError("no such file")])
def test_what_is_neither_damage_of_a_file_nor_an_error_of_the_disk_fails_it_at_once(error: Exception) -> None:
    world = World(error)
    world.pass_pauses(5)
    assert world.scans == 1 and [reason for reason in world.failures if "the catalog cannot be read" in reason]


def test_nothing_is_read_again_once_the_load_is_stopped_or_the_replica_has_failed() -> None:
    stopped, failed = World(DISK), World(DISK)
    for world in (stopped, failed):
        world.pass_pauses(0)
    stopped.load.stop()
    failed.replica.failure = "a sync failed"
    for world in (stopped, failed):
        world.pass_pauses(3)
        assert world.scans == 1 and not world.loaded


def test_a_master_whose_replica_is_gone_reads_its_catalog_no_more() -> None:
    scans: list[object] = []

    def scan(spec: object) -> EmptyCursor:
        scans.append(spec)
        raise DISK

    driver = DriverOnFakes(scan=scan)
    driver.pass_us(3 * AGAIN_US)
    assert len(scans) > 1 and driver.master.core is None
    driver.master.stop()
    count = len(scans)
    driver.pass_us(3 * AGAIN_US)
    assert len(scans) == count
