"""Which changes of members a run can bear, and which are drawn."""

from __future__ import annotations

import random

import pytest

from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.member_drawing import MemberDrawing
from stelae.sim.world import ObservedNode
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import AddServer, ChangeRole, Member, MemberChange, MemberType, RemoveServer, TabletConfig

NAMES = [NodeId(str(number) * 32) for number in range(5)]
V, W, N = MemberType.VOTER, MemberType.WITNESS, MemberType.NON_VOTER
JOINING = MemberType.PRE_WITNESS

ADD_WITNESS = AddServer(node_id=NAMES[4], address="", member_type=JOINING)
ADD_VOTER = AddServer(node_id=NAMES[4], address="", member_type=MemberType.PRE_VOTER)
DEMOTE = ChangeRole(node_id=NAMES[0], member_type=N)
REMOVE = RemoveServer(node_id=NAMES[0])
PROMOTE_LAST = ChangeRole(node_id=NAMES[3], member_type=V)
REMOVE_LAST = RemoveServer(node_id=NAMES[3])


def config(*types: MemberType) -> TabletConfig:
    members = (Member(node_id=name, address="", member_type=kind) for name, kind in zip(NAMES, types, strict=False))
    return TabletConfig(op_id=OpId(1, 1), members=tuple(members))


def drawing(*, loses_replica: bool, seed: int = 1) -> MemberDrawing:
    nodes = [ObservedNode(position, name) for position, name in enumerate(NAMES)]
    nodes[4].on_disk = ReplicaOnDisk.NOTHING
    return MemberDrawing(nodes, random.Random(seed), witnesses=True, loses_replica=loses_replica)


@pytest.mark.parametrize(
    ("before", "change", "if_none_is_lost", "if_one_is_lost"),
    [
        (config(V, V, V), ADD_WITNESS, True, True),
        (config(V, V, V), DEMOTE, False, False),
        (config(V, V, V), REMOVE, False, False),
        (config(V, V, V, V), REMOVE, True, True),
        (config(V, V, V, W), DEMOTE, True, False),
        (config(V, V, V, JOINING), DEMOTE, True, False),
        (config(V, V, V, W), ADD_WITNESS, True, False),
        (config(N, V, V, W), ADD_WITNESS, True, False),
        (config(N, V, V, W), ChangeRole(node_id=NAMES[1], member_type=N), False, False),
        (config(N, V, V, W), ChangeRole(node_id=NAMES[0], member_type=V), True, True),
        (config(N, V, V, W), REMOVE_LAST, False, False),
        (config(V, V, V, W), REMOVE_LAST, True, True),
        (config(V, V, V, W), PROMOTE_LAST, True, True),
        (config(N, V, V, W), ADD_VOTER, True, True),
    ],
)
def test_so_many_voters_with_rows_remain_that_some_replica_has_every_acknowledged_row(
    before: TabletConfig, change: MemberChange, if_none_is_lost: bool, if_one_is_lost: bool
) -> None:
    assert drawing(loses_replica=False).may_leave(before, change) is if_none_is_lost
    assert drawing(loses_replica=True).may_leave(before, change) is if_one_is_lost


def test_a_run_with_witnesses_draws_every_kind_of_change_of_them() -> None:
    drawn = {
        (type(change).__name__, getattr(change, "member_type", None))
        for seed in range(200)
        for before in (config(V, V, V), config(N, V, V, W), config(V, V, V, JOINING))
        for change in [drawing(loses_replica=False, seed=seed).draw(before)]
    }
    assert drawn >= {
        ("AddServer", JOINING),
        ("AddServer", MemberType.PRE_VOTER),
        ("ChangeRole", W),
        ("ChangeRole", V),
        ("ChangeRole", N),
        ("RemoveServer", None),
    }


def test_a_node_whose_creation_without_rows_is_unfinished_is_added_as_a_witness_only() -> None:
    for seed in range(100):
        chosen = drawing(loses_replica=False, seed=seed)
        chosen._nodes[4].on_disk = ReplicaOnDisk.BEGUN
        change = chosen.draw(config(V, V, V, N))
        if isinstance(change, AddServer) and change.node_id == NAMES[4]:
            assert change.member_type is JOINING
