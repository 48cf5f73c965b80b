"""Which of several lists of masters a client takes."""

from __future__ import annotations

import itertools

from stelae.client.masters_lookup import newest_view
from stelae.protocol.masters_messages import MastersView
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig

A, B = NodeId("a" * 32), NodeId("b" * 32)


ONE, TWO = 1_700_000_000_000_000, 1_700_000_000_000_001  # When two clusters of one id were put on record.


def view(
    op_id: OpId | None,
    *members: NodeId,
    leader: NodeId | None = None,
    removed: bool = False,
    cluster_created_us: int = ONE,
    hearsay: bool = False,
) -> MastersView:
    listed = tuple(Member(node_id=node, address="127.0.0.1:7051") for node in members)
    config = None if op_id is None else TabletConfig(op_id=op_id, members=listed)
    return MastersView(
        node_id=A, config=config, leader=leader, removed=removed, cluster_created_us=cluster_created_us, hearsay=hearsay
    )


def test_the_newest_config_wins_in_any_order_also_over_one_that_knows_a_leader() -> None:
    newest = view(OpId(3, 7), B)
    views = [view(OpId(2, 90), A, leader=A), newest, view(OpId(3, 6), A, B, leader=B, removed=True)]
    for order in itertools.permutations(views):
        assert newest_view(order) == newest


def test_of_views_with_the_same_config_the_one_that_knows_a_leader_is_taken() -> None:
    knows = view(OpId(3, 7), A, B, leader=B)
    assert newest_view([view(OpId(3, 7), A, B), knows]) == newest_view([knows, view(OpId(3, 7), A, B)]) == knows


def test_views_without_masters_do_not_count() -> None:
    assert newest_view([view(None), view(OpId(9, 9))]) is None
    assert newest_view([view(OpId(9, 9)), view(OpId(0, 0), A)]) == view(OpId(0, 0), A)


def test_what_a_master_that_waits_to_join_has_heard_of_another_cluster_does_not_count() -> None:
    """Its file listed a master of another cluster with the same id, whose config had the higher op id. Clients followed
    it, and used the tables of the other cluster."""
    known, heard = view(OpId(2, 7), A), view(OpId(9, 9), B, cluster_created_us=TWO, hearsay=True)
    assert newest_view([heard, known]) == newest_view([heard, known], ONE) == known
    assert newest_view([heard], ONE) is None, "the client waits for its own masters"
    assert newest_view([heard]) == heard, "a client may be given the address of a new master alone"


def test_what_a_master_that_waits_to_join_has_heard_of_the_cluster_counts_as_what_others_say() -> None:
    known, heard = view(OpId(2, 7), A), view(OpId(2, 9), B, hearsay=True)
    assert newest_view([heard, known], ONE) == heard
