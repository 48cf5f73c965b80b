"""Requests for a copy that are refused, by every guard that needs a file or a replica: no byte changes (rule 17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.superblock import SuperblockFile
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import Role
from stelae.spi.consensus_events import UNKNOWN
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.recovery_epoch import EPOCHS_AHEAD_MAX, first_term
from tests.unit.lifecycle.copy_node import LEADER, TERM, CopyNode, lagging_disk, tombstone_disk
from tests.unit.lifecycle.disk_node import LAYOUT, NODE, OTHER, TABLET, DiskNode
from tests.unit.lifecycle.test_tablet_copy import begun, network

ASKED_WRONGLY: list[tuple[str, CopyRefusalCode, dict[str, Any]]] = [
    ("tombstone", CopyRefusalCode.INVALID_NAME, {"to": LEADER}),
    ("tombstone", CopyRefusalCode.OTHER_CONSENSUS_ENGINE, {"consensus": "local"}),
    ("tombstone", CopyRefusalCode.ILLEGAL_STATE, {"hosted": True}),
    ("tombstone", CopyRefusalCode.BAD_TERM, {"term": 3}),
    ("tombstone", CopyRefusalCode.OTHER_LAST_OP_ID, {"last": OpId(1, 8)}),
    ("lagging", CopyRefusalCode.ILLEGAL_STATE, {"hosted": False}),
    ("lagging", CopyRefusalCode.BAD_TERM, {"hosted": True, "term": 3}),
    ("lagging", CopyRefusalCode.OTHER_LAST_OP_ID, {"hosted": True, "last": OpId(1, 8)}),
    ("lagging", CopyRefusalCode.NOT_NEEDED, {"hosted": True, "log_base": OpId(1, 7)}),
    ("never", CopyRefusalCode.VOTER_WITHOUT_REPLICA, {}),
    ("never", CopyRefusalCode.ILLEGAL_STATE, {"hosted": True}),
]


def test_a_leader_of_an_older_term_hears_the_term_that_refused_it_from_a_node_without_a_replica() -> None:
    """It asked again and again, and nothing told it the term. The member got no replica until an election."""
    node = begun("tombstone", network())
    assert node.peers.beat_state(TABLET, LEADER) == (0, UNKNOWN), "nothing was read yet"
    assert node.refusal(term=3) == CopyRefusalCode.BAD_TERM
    term, reason = node.peers.beat_state(TABLET, LEADER)
    assert term > 3 and reason == UNKNOWN
    node.tombstones.voter(TABLET, lambda voter: None)
    assert node.peers.beat_state(TABLET, LEADER) == (term, UNKNOWN)


@pytest.mark.parametrize(("place", "code", "changed"), ASKED_WRONGLY)
@pytest.mark.parametrize("slots", [1, 0])
def test_a_request_that_a_guard_refuses_changes_no_byte(
    place: str, code: CopyRefusalCode, changed: dict[str, Any], slots: int
) -> None:
    sources = network()
    node = begun(place, sources)
    sources.slots = slots
    tree, operations = node.disk.tree(), node.disk.faults.operations
    assert node.refusal(**changed) in ({code} if slots else {code, CopyRefusalCode.THROTTLED})
    assert node.disk.tree() == tree and node.disk.faults.operations == operations
    assert sources.asked == [] and sources.slots == slots
    assert (TABLET in node.peers.replicas) == (place == "lagging")
    assert node.metrics.counts == ["copies_refused"]
    without_trace = code is CopyRefusalCode.VOTER_WITHOUT_REPLICA and bool(slots)
    assert node.copies.lost == ({TABLET: True} if without_trace else {})


KNOWN = OpId(1, 7)
"""The op id of the committed config that the node knows."""


def knows(disk: VirtualDisk, *members: NodeId) -> VirtualDisk:
    """The tablet has had a change of its members."""
    metadata = ConsensusMetadata(disk, LAYOUT, TABLET)
    listed = tuple(Member(node_id=member, address=f"{member[0]}:1") for member in members)
    metadata.save(metadata.load().hard_state, TabletConfig(op_id=KNOWN, members=listed))
    return disk


def tombstone(*members: NodeId) -> CopyNode:
    return CopyNode(knows(tombstone_disk(), *members), network())


def lagging(*members: NodeId, **status: Any) -> CopyNode:
    node = CopyNode(knows(lagging_disk(), *members), network())
    one = node.recovered.pop(TABLET)
    node.add_replica(TABLET, one.superblock, one.consensus, **status)
    return node


def dropped() -> CopyNode:
    disk = tombstone_disk()
    file = SuperblockFile(disk, LAYOUT, TABLET)
    file.save(msgspec.structs.replace(file.load(), removed=True))
    return CopyNode(disk, network())


def unknown() -> CopyNode:
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete(last="UNKNOWN")
    return CopyNode(node.disk.clone(), network())


def failed() -> CopyNode:
    node = lagging(NODE, LEADER)
    replica: Any = node.peers.replicas[TABLET]
    replica.failure = "the disk is broken"
    return node


def voter_failed() -> CopyNode:
    node = tombstone(NODE, LEADER)
    assert node.vote(TERM) is not None
    node.peers.voters[TABLET].failure = "the disk is broken"
    return node


HOSTED = {"hosted": True}
TOO_HIGH = {"term": first_term(EPOCHS_AHEAD_MAX + 1, 0)}

REFUSED: dict[str, tuple[Callable[[], CopyNode], CopyRefusalCode, dict[str, Any]]] = {
    "a config that the tombstone knows": (
        lambda: tombstone(NODE, LEADER),
        CopyRefusalCode.OLD_CONFIG,
        {"config": OpId(1, 6)},
    ),
    "a config that the replica knows": (
        lambda: lagging(NODE, LEADER),
        CopyRefusalCode.OLD_CONFIG,
        HOSTED | {"config": OpId(1, 6)},
    ),
    "no member for the tombstone": (lambda: tombstone(NODE), CopyRefusalCode.NOT_A_MEMBER, {"config": KNOWN}),
    "no member for the replica": (lambda: lagging(NODE), CopyRefusalCode.NOT_A_MEMBER, HOSTED | {"config": KNOWN}),
    "a replica that leads": (lambda: lagging(NODE, LEADER, role=Role.LEADER, term=TERM), CopyRefusalCode.LEADS, HOSTED),
    "a dropped table": (dropped, CopyRefusalCode.REMOVED, {}),
    "a tombstone without a last op id": (unknown, CopyRefusalCode.LAST_OP_ID_UNKNOWN, {}),
    "a replica that has failed": (failed, CopyRefusalCode.OFFLINE, HOSTED),
    "a tombstone that cannot vote": (voter_failed, CopyRefusalCode.OFFLINE, {}),
    "a term too high for the tombstone": (lambda: tombstone(NODE, LEADER), CopyRefusalCode.TERM_TOO_HIGH, TOO_HIGH),
    "a term too high for the replica": (
        lambda: lagging(NODE, LEADER),
        CopyRefusalCode.TERM_TOO_HIGH,
        HOSTED | TOO_HIGH,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_request_that_is_refused_for_what_the_node_knows_changes_no_byte(what: str) -> None:
    make, code, changed = REFUSED[what]
    node = make()
    tree, operations, hosted = node.disk.tree(), node.disk.faults.operations, set(node.peers.replicas)
    assert node.refusal(**changed) == code
    assert node.disk.tree() == tree and node.disk.faults.operations == operations
    assert node.network.asked == [] and node.network.slots == 1
    assert set(node.peers.replicas) == hosted and node.metrics.counts == ["copies_refused"]
