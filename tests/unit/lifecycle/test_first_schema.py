"""Which of two replicas that were created in different ways fails, and when neither does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.host.superblock import PartitionBounds, Superblock
from stelae.lifecycle.first_schema import FIRST_SCHEMA, FirstSchema, FirstSchemaCheck, first_schema_sum
from stelae.rows.plain_schema import schema_from_plain
from stelae.spi.errors import PeerError
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.schema import Column, Schema

TABLET = TabletId("t")
ONE, TWO, STRANGER = NodeId("1" * 32), NodeId("2" * 32), NodeId("f" * 32)
MEMBERS = tuple(Member(node_id=node, address=f"{node[0]}:1") for node in (ONE, TWO))
ENTRY = OpId(1, 1)


def schema(*names: str, key: str = "id") -> Schema:
    return schema_from_plain({"columns": [{"name": name, "type": "int64"} for name in names], "key": [key]})


WHOLE = PartitionBounds()
AB, BA = schema("id", "a", "b"), schema("id", "b", "a")


def block(first: Schema, *later: Schema, partition: PartitionBounds = WHOLE) -> Superblock:
    schemas = tuple(version.to_bytes() for version in (first, *later))
    return Superblock(tablet_id=TABLET, schemas=schemas, partition=partition)


class Node:
    """A node with one replica. What it sends arrives at ``other`` at once."""

    def __init__(self, node_id: NodeId, first: Superblock, last: OpId) -> None:
        self.node_id, self.other = node_id, self
        self.sent: list[NodeId] = []
        self.replica: Any = SimpleNamespace(
            failure="",
            tablet_id=TABLET,
            flusher=SimpleNamespace(superblock=first),
            status=SimpleNamespace(last=last, config=TabletConfig(op_id=ZERO, members=MEMBERS)),
        )
        self.replica.fail = lambda reason: setattr(self.replica, "failure", reason)
        self.peers: Any = SimpleNamespace()
        node: Any = SimpleNamespace(peers=self.peers, messenger=self, replicas={TABLET: self.replica})
        FirstSchemaCheck(node).start()

    def on_message(self, kind: str, handler: Callable[[Any], None]) -> None:
        assert kind == FIRST_SCHEMA
        self.handler = handler

    def send(self, to: NodeId, _kind: str, frames: list[bytes]) -> None:
        assert len(self.sent) < 10, "the two nodes answer each other for ever"
        self.sent.append(to)
        if to == self.other.node_id:
            self.other.arrive(self.node_id, *frames)

    def arrive(self, sender: NodeId, *frames: bytes) -> None:
        self.handler(SimpleNamespace(sender=sender, body=frames))

    def hears(self, other: Node) -> None:
        """Get a consensus message of another node."""
        theirs = other.peers.first_schema_sum(other.replica)
        if theirs != self.peers.first_schema_sum(self.replica):
            self.peers.check_first_schema(other.node_id, self.replica, theirs)


def pair(one: Superblock, two: Superblock, *last: OpId) -> tuple[Node, Node]:
    nodes = Node(ONE, one, last[0]), Node(TWO, two, last[1])
    nodes[0].other, nodes[1].other = nodes[1], nodes[0]
    return nodes


@pytest.mark.parametrize("first_hears", [True, False], ids=["the one with entries", "the empty one"])
def test_whoever_hears_the_other_first_the_replica_without_entries_fails(first_hears: bool) -> None:
    with_entries, empty = pair(block(AB), block(BA), ENTRY, ZERO)
    hears, other = (with_entries, empty) if first_hears else (empty, with_entries)
    with pytest.raises(PeerError, match="has another first schema or partition of tablet t"):
        hears.hears(other)
    assert with_entries.replica.failure == ""
    failure = empty.replica.failure
    assert "the columns id int64, b int64, a int64; key id; that of node 1111" in failure
    assert "with id int64, a int64, b int64; key id" in failure and "remove the node's directory" in failure


@pytest.mark.parametrize("last", [ZERO, ENTRY])
def test_if_both_or_neither_have_entries_none_fails_and_both_warn_once(
    last: OpId, caplog: pytest.LogCaptureFixture
) -> None:
    """Without entries a majority may still turn out for either of them."""
    nodes = pair(block(AB), block(BA), last, last)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            for hears, other in (nodes, reversed(nodes)):
                with pytest.raises(PeerError):
                    hears.hears(other)
    assert [node.replica.failure for node in nodes] == ["", ""]
    assert len(caplog.records) == 2
    assert all("id int64, b int64, a int64; key id" in record.message for record in caplog.records)


DIFFERENT = {
    "names": block(schema("id", "a", "c")),
    "key": block(schema("id", "a", "b", key="a")),
    "types": block(schema_from_plain({"columns": [{"name": n, "type": "string"} for n in ("id", "a")], "key": ["id"]})),
    "buckets": block(AB, partition=PartitionBounds(hash_buckets=(1,))),
    "range": block(AB, partition=PartitionBounds(key_low=b"x")),
    "end of the range": block(AB, partition=PartitionBounds(key_high=b"x")),
    "scheme": block(AB, partition=PartitionBounds(scheme=b"x")),
}


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
def test_each_part_of_the_first_schema_counts(other: Superblock) -> None:
    one, two = pair(block(AB), other, ENTRY, ZERO)
    with pytest.raises(PeerError):
        one.hears(two)
    assert two.replica.failure


def test_an_altered_table_is_compared_by_its_first_schema() -> None:
    altered = Schema(2, (*AB.columns, Column(id=4, name="c", type="int64", nullable=True)), AB.key)
    one, two = pair(block(AB, altered), block(AB), ENTRY, ZERO)
    one.hears(two)
    assert one.sent == []
    with pytest.raises(PeerError):
        one.hears(Node(TWO, block(BA), ZERO))


def test_a_witness_that_knows_only_a_later_schema_is_not_compared() -> None:
    later = Schema(2, AB.columns, AB.key)
    assert first_schema_sum(block(later)) == 0 == first_schema_sum(Superblock(tablet_id=TABLET))
    one, two = pair(block(AB), block(later), ENTRY, ZERO)
    one.hears(two)
    two.hears(one)
    assert not two.replica.failure


def test_a_node_that_is_no_member_fails_no_replica() -> None:
    node = Node(ONE, block(AB), ZERO)
    body = FirstSchema(tablet_id=TABLET, schema=BA.to_bytes(), partition=PartitionBounds(), last=ENTRY)
    node.arrive(STRANGER, msgspec.msgpack.encode(body))
    assert not node.replica.failure
    node.arrive(TWO, msgspec.msgpack.encode(body))
    assert node.replica.failure


@pytest.mark.parametrize("frames", [(), (b"",), (b"\xc1",), (msgspec.msgpack.encode({}),)])
def test_a_message_that_is_malformed_is_refused(frames: tuple[bytes, ...]) -> None:
    with pytest.raises(PeerError, match="malformed first_schema"):
        Node(ONE, block(AB), ZERO).arrive(TWO, *frames)
