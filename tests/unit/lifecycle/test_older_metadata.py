"""Consensus metadata that is older than the log: the replica may have voted in terms that it has forgotten.

A replica with such metadata failed, but its last op id was taken for known. After its deletion, the tombstone began
with the old term and no vote, and could vote again in a term in which it had voted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.superblock import DataState
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.lifecycle.log_agreement import LogContradicts
from stelae.lifecycle.startup_decisions import lost_logs, scan_tablets
from stelae.lifecycle.tablet_recovery import recover
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.errors import CallerError
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.members import TabletConfig
from stelae.spi.wal import Append
from tests.unit.lifecycle.copy_node import CopyNode, KillAt, Killed, lagging_disk, tombstone_disk
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, TABLET, DiskNode, row
from tests.unit.lifecycle.test_restore_from_quarantine import NAME, restored
from tests.unit.lifecycle.test_tablet_copy import network

LOG = LogId(TABLET, 1)
SAYS = "the last op id is 1.9, but the durable term is 0"
_CONFIG = TabletConfig(op_id=ZERO, members=())


def older(disk: VirtualDisk, hard_state: HardState = HardState()) -> VirtualDisk:
    """Replace the consensus metadata by those of an earlier time."""
    disk.remove(LAYOUT.consensus_of(TABLET))
    ConsensusMetadata(disk, LAYOUT, TABLET).save(hard_state, _CONFIG)
    return disk


def test_a_replica_fails_and_its_last_op_id_is_lost() -> None:
    node = DiskNode(older(lagging_disk()))
    assert TABLET not in node.recovered()
    assert node.loader.unknown_op_ids == {TABLET} and SAYS in node.loader.failed[TABLET]
    assert node.loader.failed_configs[TABLET].op_id == ZERO, "masters delete it by that"
    with pytest.raises(LogContradicts, match=SAYS):
        record = ConsensusMetadata(node.disk, LAYOUT, TABLET).load()
        recover(node.block(), record, node.loader._engines, LAYOUT.data_of(TABLET))
    (lost,) = lost_logs(scan_tablets(node.disk, LAYOUT, node.wal.logs(), node.wal.op_id_at))
    assert lost.tablet_id == TABLET and SAYS in lost.failure, "fs check and wal verify say so"


def test_one_whose_log_ends_in_a_term_that_it_knows_starts() -> None:
    node = DiskNode(older(lagging_disk(), HardState(LAST.term, None)))
    assert TABLET in node.recovered() and not node.loader.unknown_op_ids


def test_only_the_last_entry_of_a_later_term_shows_it() -> None:
    node = DiskNode(lagging_disk())
    node.wal.commit({LOG: Append(entries=(row(10, 5),))}, sync=True)
    assert TABLET not in node.recovered() and node.loader.unknown_op_ids == {TABLET}
    assert "the last op id is 5.10, but the durable term is 4" in node.loader.failed[TABLET]


def test_the_tombstone_of_such_a_replica_never_votes() -> None:
    node, answers = CopyNode(older(lagging_disk()), network()), list[Any]()
    node.manager.delete(TABLET, "it has failed", answers.append, seen=ZERO)
    assert answers == [None] and node.block().tombstone == "UNKNOWN"
    for again in (node, CopyNode(node.disk.clone(), network())):
        reply = again.vote(2, last=OpId(1, 99))
        assert reply is not None and reply.refusal is not None
        assert again.refusal() == CopyRefusalCode.LAST_OP_ID_UNKNOWN


def copy_cut_short() -> VirtualDisk:
    """A copy over the tombstone that was killed when the superblock was COPYING."""
    node = CopyNode(tombstone_disk(), network(), KillAt("copy.after_marked"))
    with pytest.raises(Killed):
        node.ask_until_end()
    assert node.block().data_state is DataState.COPYING
    return node.disk.clone()


@pytest.mark.parametrize("disk", [tombstone_disk, copy_cut_short])
def test_a_tombstone_with_such_metadata_does_not_vote_and_is_not_copied_over(disk: Callable[[], VirtualDisk]) -> None:
    node = CopyNode(older(disk()), network())
    assert node.loader.unknown_op_ids == {TABLET} and SAYS in node.loader.failed[TABLET]
    assert node.vote(2, last=OpId(1, 99)) is None
    assert node.refusal() == CopyRefusalCode.LAST_OP_ID_UNKNOWN
    assert node.metadata() == (HardState(), ZERO), "with a later term, no one would notice any more"
    with pytest.raises(CallerError, match=SAYS):
        restored(DiskNode(node.disk.clone()), NAME)


@pytest.mark.parametrize("disk", [tombstone_disk, copy_cut_short])
def test_masters_can_delete_such_a_tombstone_again(disk: Callable[[], VirtualDisk]) -> None:
    node, answers = CopyNode(older(disk()), network()), list[Any]()
    node.manager.delete(TABLET, "dropped", answers.append, seen=None)
    assert answers == [None] and node.block().removed
    assert TABLET not in node.loader.failed and TABLET in node.loader.unknown_op_ids
    again = CopyNode(node.disk.clone(), network())
    reply = again.vote(2, last=OpId(1, 99))
    assert reply is None or reply.refusal is not None
