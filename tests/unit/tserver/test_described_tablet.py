"""The ``[tablet]`` of a node without masters against what its directory has: the id, and the members."""

from __future__ import annotations

import logging

import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.settings import TabletSettings
from stelae.server.tserver.described_tablet import DescribedTabletLoader
from stelae.spi.consensus import HardState
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from tests.unit.lifecycle.disk_node import LAYOUT, NODE, SCHEMA, TABLET, DiskNode

B, C = NodeId("b" * 32), NodeId("c" * 32)


def member(node: NodeId) -> Member:
    return Member(node_id=node, address=f"{node[0]}:1")


def restarted(node: DiskNode) -> DiskNode:
    """A node without masters on the disk of another one."""
    again = DiskNode(node.disk.clone())
    again.loader = DescribedTabletLoader(again.disk, LAYOUT, again.loader._engines, ("raft", "durable"), again.crash)
    return again


def create(node: DiskNode, tablet_id: str = TABLET, members: tuple[NodeId, ...] = (NODE,)) -> bool:
    """Start with this section; return whether a tablet was created."""
    listed = tuple(member(one) for one in members)
    return node.loader.create(TabletSettings(id=TabletId(tablet_id), schema=SCHEMA, members=listed))


def with_members(*nodes: NodeId) -> DiskNode:
    """A node whose stored tablet has these members."""
    node = DiskNode.with_rows(TABLET)
    config = TabletConfig(op_id=OpId(1, 1), members=tuple(member(one) for one in nodes))
    ConsensusMetadata(node.disk, LAYOUT, TABLET).save(HardState(4, NODE), config)
    return node


def test_a_section_with_another_id_than_the_stored_tablet_is_told_with_both(caplog: pytest.LogCaptureFixture) -> None:
    """A mistyped id started a second, empty tablet beside the old one without a word."""
    node = restarted(DiskNode.with_rows(TABLET))
    with caplog.at_level(logging.WARNING):
        assert create(node, "tt")
    (record,) = caplog.records
    assert record.message.startswith("[tablet] has the new id tt, and the directory /node has tablet t: another, empty")
    assert set(node.recovered()) == {TABLET, "tt"}, "a node may have several"


def test_a_tombstone_is_no_tablet(caplog: pytest.LogCaptureFixture) -> None:
    node = DiskNode.with_rows(TABLET)
    node.delete()
    with caplog.at_level(logging.WARNING):
        assert create(restarted(node), "tt")
    assert caplog.records == []


def test_an_empty_directory_gets_the_tablet_and_keeps_it() -> None:
    node = restarted(DiskNode.with_rows())
    assert create(node) and set(node.recovered()) == {TABLET}
    assert not create(restarted(node))


def test_a_section_with_other_members_than_the_config_is_told_with_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    """Three members instead of one started without a word."""
    with caplog.at_level(logging.WARNING):
        create(restarted(with_members(NODE)), members=(NODE, B, C))
    (record,) = caplog.records
    assert record.message.startswith(
        "[tablet] members lists a:1 (aaaaaaaa), b:1 (bbbbbbbb), c:1 (cccccccc); by config 1.1 the members of tablet t "
        "are a:1 (aaaaaaaa):"
    )


def test_the_same_members_in_any_order_are_no_difference(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        create(restarted(with_members(NODE, B, C)), members=(C, NODE, B))
    assert caplog.records == []
