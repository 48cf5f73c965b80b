"""What is left until a cluster is balanced: replicas, bytes and time, several plans ahead."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.cli import rebalance_plan
from stelae.cli.policy_cluster import PolicyCluster
from stelae.cli.rebalance_plan import PLANS_MAX, Rebalance, rebalance_of
from stelae.cli.run_rebalance import _Cluster, _summary
from stelae.spi.members import MemberType
from stelae.spi.policy import ActionKind, NodeHealth, PolicySnapshot, ReplicaView
from stelae_placement_policy import PlacementPolicy
from stelae_placement_policy.config import PlacementConfig

SIZE = 1 << 30


def balanced(tablets: int = 40) -> PolicyCluster:
    """Four servers with as many tablets of one size as a test wants."""
    cluster = PolicyCluster(1)
    cluster.join(4)
    cluster.create(tablets, 3)
    for _ in range(20):
        cluster.apply(PlacementPolicy.plan(cluster.snapshot(), PlacementConfig(), cluster.rng))
    for tablet in list(cluster.tablets.values()):
        cluster.sizes[tablet.tablet_id] = SIZE
        replicas = tuple(msgspec.structs.replace(one, size_bytes=SIZE) for one in tablet.replicas)
        cluster._replace(tablet, replicas=replicas)
    for _ in range(50):
        cluster.apply(PlacementPolicy.plan(cluster.snapshot(), PlacementConfig(), cluster.rng))
    return cluster


def left(snapshot: PolicySnapshot, **config: Any) -> Rebalance:
    return rebalance_of(PlacementPolicy, PlacementConfig(**config), snapshot, 0)


def test_a_balanced_cluster_has_nothing_left_to_do() -> None:
    found = left(balanced().snapshot())
    assert found.is_done and (found.plans, found.bytes_left, found.time_s({}, 1)) == (0, 0, 0.0)


def test_a_server_that_joins_is_filled_by_several_plans_and_all_their_bytes_count() -> None:
    cluster = balanced()
    cluster.join(1)
    found = left(cluster.snapshot(), copies_per_node_max=2)
    now = sum(action.kind is ActionKind.ADD for action in found.now)
    assert 0 < now < found.copies and found.plans > 2, "the first plan does not have all of them"
    assert found.bytes_left == found.copies * SIZE and found.to_the_end
    assert found.counts[ActionKind.REMOVE] == found.copies, "each move ends with a removal"
    assert not found.is_done


def test_the_snapshot_is_not_changed_by_looking_ahead() -> None:
    cluster = balanced()
    cluster.join(1)
    before = msgspec.json.encode(cluster.snapshot())
    left(cluster.snapshot())
    assert msgspec.json.encode(cluster.snapshot()) == before


def test_the_slowest_server_decides_the_time() -> None:
    cluster = balanced()
    one, other, *_ = cluster.nodes
    found = Rebalance(now=(), moving=(), plans=0, counts={}, bytes_to={one: 100, other: 300})
    assert found.time_s({}, 10) == 30.0
    assert found.time_s({one: 1, other: 0}, 10) == 100.0


def test_a_copy_under_way_counts_with_what_it_lacks() -> None:
    cluster = balanced()
    tablet = next(iter(cluster.tablets.values()))
    (spare,) = set(cluster.nodes) - {one.node_id for one in tablet.replicas}
    coming = ReplicaView(
        node_id=spare,
        member_type=MemberType.PRE_VOTER,
        role=tablet.replicas[1].role,
        healthy=False,
        copying=True,
        size_bytes=SIZE // 4,
    )
    cluster._replace(tablet, replicas=(*tablet.replicas, coming))
    found = left(cluster.snapshot())
    assert found.moving == (tablet.tablet_id,) and not found.is_done
    assert found.bytes_to[spare] >= SIZE - SIZE // 4


def test_with_moves_off_only_repairs_are_left() -> None:
    cluster = balanced()
    cluster.join(1)
    assert left(cluster.snapshot(), moves_max=0).copies == 0
    cluster.set_health(next(iter(cluster.nodes)), NodeHealth.DEAD)
    assert left(cluster.snapshot(), moves_max=0).copies > 0


def test_a_member_on_a_server_that_nobody_knows_ends_the_look_ahead_after_one_plan() -> None:
    cluster = balanced()
    gone = next(iter(cluster.nodes))
    del cluster.nodes[gone]
    found = left(cluster.snapshot())
    assert found.plans <= 1 and not found.to_the_end


def test_the_look_ahead_ends_when_nothing_is_left() -> None:
    cluster = balanced(200)
    cluster.join(4)
    found = left(cluster.snapshot())
    assert found.to_the_end and 2 < found.plans < PLANS_MAX


def test_the_look_ahead_into_a_large_cluster_is_bounded_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = balanced()
    cluster.join(1)
    monkeypatch.setattr(rebalance_plan, "TABLETS_MAX", 100)
    found = left(cluster.snapshot(), copies_per_node_max=1)
    assert (found.plans, found.to_the_end) == (2, False)


def test_a_tablet_that_no_server_can_repair_is_named_and_not_called_well_placed() -> None:
    """The command said that every tablet is where the policy wants it."""
    cluster = PolicyCluster(1)
    cluster.join(3)
    cluster.create(1, 3)
    cluster.apply(PlacementPolicy.plan(cluster.snapshot(), PlacementConfig(), cluster.rng))
    assert not left(cluster.snapshot()).waiting
    cluster.set_health(sorted(cluster.nodes)[0], NodeHealth.DEAD)
    found = left(cluster.snapshot(), transfers_max=0)
    needs = "a server that can take a replica: it has 2 of 3 voters"
    assert found.is_done and found.waiting == {"tablet-000000": needs}
    for moves_max in (0, 256):
        told = _Cluster(PlacementPolicy, PlacementConfig(moves_max=moves_max), {}, {})
        lines = _summary(told, found, 0.0, 1)
        assert lines[0].startswith(f"1 tablet cannot be helped by the masters now: tablet-000000 waits for {needs}")
        assert ("balancing is off" in lines[-1]) is (moves_max == 0) and "every tablet" not in lines[-1]
