"""Hypothesis strategies: sane clusters, on which the model runs, and wild snapshots, which only have valid types."""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from stelae.spi.consensus import Role
from stelae.spi.ids import OpId, TabletId
from stelae.spi.members import MemberType
from stelae.spi.policy import NodeHealth, NodeView, PolicySnapshot, ReplicaView, TabletView
from stelae.testing.conformance.policy_model import GIB, ModelCluster, node_name

EXAMPLES = settings(max_examples=100, derandomize=True, database=None, deadline=None)
"""The Hypothesis settings of each check. Every run draws the same examples."""
NODES_MAX = 9
TABLETS_MAX = 14
LOCATIONS = ("", "/a", "/a/r1/h1", "/a/r1/h2", "/a/r2/h3", "/b/r3/h4", "/b/r3/h5", "/b/r4/h6", "/c/r5/h7")
FREE = (0, GIB // 2, 20 * GIB, 100 * GIB, 100 * GIB, 400 * GIB)
_ODD = ("learner", "failed", "pending", "copied", "witness", "pinned", "moved", "barred", "avoided")
ODD_TABLETS = (*[""] * 6, *_ODD)
HEALTH = (*[NodeHealth.LIVE] * 8, NodeHealth.DEAD, NodeHealth.RETIRING, NodeHealth.MAINTENANCE)


@st.composite
def sane_clusters(draw: st.DrawFn) -> ModelCluster:
    """Draw a cluster that may occur: a leader where a majority is up, extra replicas, half-done moves, any factor."""
    count = draw(st.integers(1, NODES_MAX))
    locations = draw(st.sampled_from([LOCATIONS, LOCATIONS[:1], LOCATIONS[2:]]))
    nodes = [
        NodeView(
            node_id=node_name(number),
            health=NodeHealth.LIVE,
            location=draw(st.sampled_from(locations)),
            free_bytes=draw(st.sampled_from(FREE)),
            load_ops_per_s=draw(st.sampled_from((0.0, 10.0, 10.0, 1000.0))),
        )
        for number in range(1, count + 1)
    ]
    cluster = ModelCluster(nodes, copy_rounds=draw(st.integers(1, 3)))
    for at in range(draw(st.integers(0, TABLETS_MAX))):
        _sane_tablet(draw, cluster, f"t{at:02}", count)
    for number in range(1, count + 1):
        health = draw(st.sampled_from(HEALTH))
        if health is not NodeHealth.LIVE:
            cluster.set_health(number, health)
    return cluster


def _sane_tablet(draw: st.DrawFn, cluster: ModelCluster, name: str, nodes: int) -> None:
    factor = draw(st.sampled_from((1, 3, 3, 3, 5)))
    size = draw(st.sampled_from((0, 1, GIB, GIB, 8 * GIB)))
    on = draw(st.lists(st.integers(1, nodes), unique=True, max_size=min(nodes, 6)))
    cluster.create(name, on, factor=factor, size=size)
    odd = draw(st.sampled_from(ODD_TABLETS))
    if odd == "learner" and len(on) > 1:
        _replace_last(cluster, name, member_type=MemberType.PRE_VOTER, role=Role.LEARNER, size_bytes=0)
        cluster.copying[TabletId(name), node_name(on[-1])] = cluster.copy_rounds
    elif odd == "failed" and len(on) > 1:
        _replace_last(cluster, name, healthy=False)
    elif odd == "pending" and on:
        cluster.change(name, change_pending=True)
    elif odd in ("copied", "witness") and len(on) > 1:
        if odd == "copied":
            _replace_last(cluster, name, size_bytes=0, healthy=False, copying=True)
        else:
            _replace_last(cluster, name, size_bytes=0, member_type=MemberType.WITNESS)
        cluster.copying[TabletId(name), node_name(on[-1])] = cluster.copy_rounds
    elif odd == "pinned" and len(on) > 1:
        _replace_last(cluster, name, pinned=True)
    elif odd == "moved" and len(on) > 1:
        _replace_last(cluster, name, replaces=node_name(on[0]))
    elif odd in ("barred", "avoided"):
        others = [node_name(number) for number in range(1, nodes + 1) if number not in on]
        cluster.change(name, **{odd: tuple(others[:2])})


def _replace_last(cluster: ModelCluster, name: str, **fields: object) -> None:
    replicas = cluster.tablets[TabletId(name)].replicas
    cluster.change(name, replicas=(*replicas[:-1], msgspec.structs.replace(replicas[-1], **fields)))


_WILD_NODES = st.lists(
    st.builds(
        NodeView,
        node_id=st.integers(1, 6).map(node_name),
        health=st.sampled_from(NodeHealth),
        location=st.sampled_from((*LOCATIONS, "/", "//", "no slash", "/a/r1/h1/n1", "/ä b")),
        free_bytes=st.sampled_from((-1, 0, 1, 1 << 70)),
        load_ops_per_s=st.floats(),
    ),
    max_size=6,
)
_WILD_REPLICAS = st.builds(
    ReplicaView,
    node_id=st.integers(1, 8).map(node_name),
    member_type=st.sampled_from(MemberType),
    role=st.sampled_from(Role),
    healthy=st.booleans(),
    size_bytes=st.sampled_from((-1, 0, 1, 1 << 70)),
    copying=st.booleans(),
    pinned=st.booleans(),
    replaces=st.none() | st.integers(1, 8).map(node_name),
)
_WILD_NAMES = st.lists(st.integers(1, 8).map(node_name), max_size=4).map(tuple)
_WILD_TABLETS = st.lists(
    st.builds(
        TabletView,
        tablet_id=st.integers(1, 6).map(lambda number: TabletId(f"t{number}")),
        replication_factor=st.sampled_from((-1, 0, 1, 2, 3, 4, 5, 1000)),
        config_op_id=st.builds(OpId, st.integers(0, 3), st.integers(0, 1 << 40)),
        replicas=st.lists(_WILD_REPLICAS, max_size=7).map(tuple),
        change_pending=st.booleans(),
        barred=_WILD_NAMES,
        avoided=_WILD_NAMES,
    ),
    max_size=6,
)


def wild_snapshots() -> st.SearchStrategy[PolicySnapshot]:
    """Draw any snapshot that the types allow: unknown nodes, members twice, even factors, absurd numbers."""
    return st.builds(
        lambda nodes, tablets: PolicySnapshot(
            now_us=1,
            nodes={node.node_id: node for node in nodes},
            tablets={tablet.tablet_id: tablet for tablet in tablets},
        ),
        _WILD_NODES,
        _WILD_TABLETS,
    )
