"""The creation of an empty replica: power lost at every disk operation leaves nothing, or a whole replica."""

from __future__ import annotations

import random

import pytest

from stelae.host.instance import Instance, format_directory
from stelae.host.settings import TabletSettings
from stelae.lifecycle.startup_decisions import StartupAction
from stelae.sim.disk import Survival, VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import HardState
from stelae.spi.ids import ZERO
from tests.unit.lifecycle.disk_node import LAYOUT, NODE, SCHEMA, TABLET, DiskNode, moments

NEW = TabletSettings(id=TABLET, schema=SCHEMA, members=())
"""A replica as a leader has it created: its members come with the log."""


def formatted() -> VirtualDisk:
    disk = VirtualDisk()
    format_directory(disk, LAYOUT, Instance(node_id=NODE, cluster_id=None, wal_engine="segmented"))
    return disk


def found(node: DiskNode) -> StartupAction:
    return node.loader.inspect(TABLET, node.wal.logs()).decision.action


def check_whole(node: DiskNode) -> None:
    (replica,) = node.loader.recover_all()
    assert replica.superblock.schemas == (SCHEMA.to_bytes(),) and replica.log.last == ZERO
    assert replica.consensus.hard_state == HardState() and replica.consensus.committed_config.members == ()


def operations() -> int:
    disk = formatted()
    node = DiskNode(disk)
    before = disk.faults.operations
    assert node.loader.create(NEW)
    return disk.faults.operations - before


@pytest.mark.parametrize("survival", Survival)
def test_power_lost_at_every_operation_leaves_nothing_or_a_whole_replica(survival: Survival) -> None:
    actions = []
    for count in range(operations()):
        disk = formatted()
        node = DiskNode(disk)
        disk.faults.lose_power_after(operations=count)
        with pytest.raises(PowerLost):
            node.loader.create(NEW)
        again = DiskNode(disk.crash(random.Random(count), survival))
        actions.append(found(again))
        assert actions[-1] in (StartupAction.NOTHING, StartupAction.START), count
        assert again.loader.create(NEW) is (actions[-1] is StartupAction.NOTHING)
        check_whole(again)
    assert actions == sorted(actions, key=[StartupAction.NOTHING, StartupAction.START].index)


def test_a_creation_that_is_repeated_after_a_kill_at_any_operation_survives_a_power_loss() -> None:
    disk = formatted()
    node = DiskNode(disk)
    for killed in moments(disk, lambda: node.loader.create(NEW)):
        DiskNode(killed).loader.create(NEW)
        again = DiskNode(killed.crash(random.Random(1), Survival.LOST))
        assert found(again) is StartupAction.START
        check_whole(again)


@pytest.mark.parametrize("survival", Survival)
def test_a_replica_whose_creation_has_ended_survives_a_crash(survival: Survival) -> None:
    disk = formatted()
    assert DiskNode(disk).loader.create(NEW)
    again = DiskNode(disk.crash(random.Random(1), survival))
    assert found(again) is StartupAction.START and not again.loader.create(NEW)
    check_whole(again)
