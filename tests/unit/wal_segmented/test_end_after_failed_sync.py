"""After a failed sync a log ends at its last durable op id at most, whatever else is wrong with it (rule 7)."""

from __future__ import annotations

import pytest

from stelae.spi.ids import ZERO, OpId
from stelae.testing.wal_harness import VirtualHarness
from stelae.testing.wal_model import LOG, OTHER
from stelae_wal_segmented.base_file import LogUse, read_base, write_base
from tests.unit.wal_segmented.scenes import ALL, BASE, FIRST, SECOND, filled, opened, recovered, small_harness


@pytest.fixture
def harness() -> VirtualHarness:
    return small_harness()


def record_failure(harness: VirtualHarness, durable: OpId) -> None:
    """Record in the base file that a sync failed."""
    base = read_base(harness.disk, BASE)
    write_base(harness.disk, BASE, base.changed(use=LogUse.SYNC_FAILED, durable=durable))


@pytest.mark.parametrize(("bad", "last"), [(6, 6), (12, 10), (14, 10)])
def test_damage_behind_the_durable_entry_does_not_lift_the_end(harness: VirtualHarness, bad: int, last: int) -> None:
    """The damage hid the failed sync: the log ended just before the damage, with entries that were not durable."""
    opened(harness, 15)
    record_failure(harness, OpId(1, 10))
    harness.disk.damage(FIRST, harness.disk.read_bytes(FIRST).index(ALL[bad].body) + 3)
    found = recovered(harness)
    assert found.damage is not None
    assert found.last == found.damage.last_good == OpId(1, last)
    assert harness.open().logs()[LOG].last == OpId(1, last)


def test_a_log_that_cannot_be_read_to_its_end_does_not_show_more(harness: VirtualHarness) -> None:
    engine = filled(harness)
    engine.create(OTHER, ZERO)
    engine.close()
    record_failure(harness, OpId(1, 4))
    harness.disk.faults.fail_reads(SECOND, 1 << 30)
    state = harness.open().logs()[LOG]
    assert state.damage is not None and state.damage.unread
    assert state.last == state.damage.last_good and state.last <= OpId(1, 4)
