"""Whole plans: limits, loads, replay under other hash seeds, and a cluster too large for a model."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from stelae.cli.policy_cluster import PolicyCluster
from stelae.cli.policy_simulate import PolicySimulation
from stelae.spi.policy import ActionKind, NodeHealth
from stelae.testing.conformance.policy_model import node_name
from stelae_placement_policy import PlacementPolicy
from stelae_placement_policy.config import PlacementConfig
from tests.unit.placement_policy.clusters import GIB, cluster, harness

RACKS = tuple(f"/d/r{rack}/h{rack}-{host}" for rack in range(3) for host in range(3))

REPLAY = """
import hashlib, random
from stelae.cli.policy_cluster import PolicyCluster
from stelae_placement_policy import PlacementPolicy
world, rng, digest = PolicyCluster(5), random.Random(5), hashlib.sha256()
world.join(40); world.create(400, 3)
for happen in (lambda: None, world.grow, lambda: world.join(3)):
    happen()
    for _ in range(4):
        plan = PlacementPolicy.plan(world.snapshot(), PlacementPolicy.Config(), rng)
        digest.update(repr(plan).encode())
        world.apply(plan)
print(digest.hexdigest())
"""


def test_plans_are_the_same_under_any_hash_seed() -> None:
    def digest(seed: str) -> str:
        environment = os.environ | {"PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", REPLAY], capture_output=True, text=True, env=environment, check=True
        )
        return done.stdout

    assert digest("1") == digest("2") == digest("77")


def test_every_kind_of_action_has_its_limit() -> None:
    model = cluster(*RACKS)
    for at in range(12):
        model.create(f"new{at}", factor=3)
        model.create(f"old{at}", (1, 2, 3))
    plan = harness(placements_max=5, moves_max=2, transfers_max=1).plan(model.snapshot())
    counts = Counter(action.kind for action in plan)
    assert counts == {ActionKind.PLACE: 15, ActionKind.ADD: 2, ActionKind.TRANSFER: 1}
    none = harness(moves_max=0, transfers_max=0).plan(model.snapshot())
    assert {action.kind for action in none} == {ActionKind.PLACE}


def test_a_server_under_high_load_is_given_no_leaders_and_no_moved_replicas() -> None:
    model = cluster(*("",) * 4)
    for at in range(12):
        model.create(f"t{at}", (1, 2, 3))
    loads = {1: 10.0, 2: 10.0, 3: 10.0, 4: 500.0}
    for number, load in loads.items():
        node = model.nodes[node_name(number)]
        model.nodes[node_name(number)] = msgspec.structs.replace(node, load_ops_per_s=load)
    given = {action.node_id for action in harness().plan(model.snapshot())}
    assert given and node_name(4) not in given


def test_a_move_never_makes_the_locations_of_its_tablet_worse() -> None:
    """Rack 3 is empty and every tablet has a replica in each of the other two, and one in rack 1 or 2."""
    model = cluster(*(f"/d/r{number % 2}/h{number}" for number in range(1, 9)), "/d/r0/h9", copy_rounds=2)
    for at in range(12):
        model.create(f"t{at}", (1 + at % 4 * 2, 2 + at % 4 * 2), factor=2)
    harness().converge(model)
    for tablet in model.tablets.values():
        racks = {model.nodes[replica.node_id].location.split("/")[2] for replica in tablet.replicas}
        assert len(racks) == 2


def test_a_new_tablet_is_led_where_least_is_led() -> None:
    model = cluster(*("",) * 3)
    for at in range(9):
        model.create(f"t{at}", factor=3)
    led = Counter(action.node_id for action in harness().plan(model.snapshot())[::3])
    assert sorted(led.values()) == [3, 3, 3]


@pytest.mark.parametrize("seed", range(3))
def test_skewed_clusters_of_uneven_servers_come_to_rest(seed: int) -> None:
    """Larger than what the conformance suite draws: 16 servers of three sizes, a third of which has everything."""
    rng = random.Random(seed)
    locations = [f"/d/r{number % 4}/h{number // 2}" for number in range(16)]
    model = cluster(*locations, copy_rounds=1 + seed)
    for number in range(1, 17):
        node = model.nodes[node_name(number)]
        free = (100, 200, 400)[int(rng.random() * 3)] * GIB
        model.nodes[node_name(number)] = msgspec.structs.replace(node, free_bytes=free)
    for at in range(50):
        first = int(rng.random() * 4)
        model.create(f"t{at:02}", (1 + first, 1 + (first + 1) % 6, 1 + (first + 2) % 6), size=int(rng.random() * GIB))
    harness().converge(model)
    twice = Counter(model.added)
    assert sum(count > 1 for count in twice.values()) <= 1
    assert all(len(tablet.replicas) == 3 for tablet in model.tablets.values())


@pytest.mark.long
def test_two_hundred_servers_are_spread_within_five_percent() -> None:
    """A fifth of the size that the project promises, so that it takes a second; `stelae policy simulate` does all."""
    simulation = PolicySimulation(PlacementPolicy, servers=200, tablets=8000, replication=3, seed=1)
    created, grown, died, *_ = simulation.run(plans_max=12)
    for phase, tolerated in ((created, 5), (grown, 8), (died, 8)):
        for what in ("replicas", "leaders"):
            figures = phase["spread"][what]
            assert figures["min_percent"] >= 100 - tolerated, (phase["phase"], what, figures)
            assert figures["max_percent"] <= 100 + tolerated, (phase["phase"], what, figures)
        assert phase["shared"] == {"data centre": 0, "rack": 0, "host": 0}
    assert created["actions"]["PLACE"] == 24_000
    assert json.dumps(created)


def test_a_dead_server_is_replaced_in_a_few_plans() -> None:
    world = PolicyCluster(3)
    world.join(60)
    world.create(600, 3)
    world.apply(PlacementPolicy.plan(world.snapshot(), PlacementConfig(), world.rng))
    dead = next(iter(world.nodes))
    held = sum(any(r.node_id == dead for r in tablet.replicas) for tablet in world.tablets.values())
    world.set_health(dead, NodeHealth.DEAD)
    for _ in range(4):
        world.apply(PlacementPolicy.plan(world.snapshot(), PlacementConfig(), world.rng))
    assert held > 20
    for tablet in world.tablets.values():
        assert dead not in {replica.node_id for replica in tablet.replicas}
        assert len([replica for replica in tablet.replicas if replica.healthy]) >= 3
