"""The nearest replica: on the own host, then in the own rack, then in the own data centre, then any other."""

from __future__ import annotations

import random

import pytest

from stelae.client.nearness import Nearness, is_own_host
from stelae.spi.ids import NodeId

NODES = [NodeId(name) for name in "abcde"]
LOCATIONS = {
    NodeId("a"): "/oslo/r1/h1",
    NodeId("b"): "/oslo/r1/h2",
    NodeId("c"): "/oslo/r2/h3",
    NodeId("d"): "/bergen/r1/h1",
}


def test_replicas_are_tried_from_the_own_host_outwards() -> None:
    near = Nearness("/oslo/r1/h9", LOCATIONS, {NodeId("c")})
    assert [near.distance(node) for node in NODES] == [2, 2, 0, 4, 4]


def test_a_process_on_the_host_of_a_node_has_the_location_of_the_node() -> None:
    near = Nearness("", LOCATIONS, {NodeId("a")})
    assert near.location == "/oslo/r1/h1"
    assert near.ordered(NODES, random.Random(1))[:3] == ["a", "b", "c"]


@pytest.mark.parametrize("location", ["", "/bergen", "/"])
def test_replicas_at_one_distance_share_the_reads(location: str) -> None:
    near, rng = Nearness(location), random.Random(1)
    assert {near.ordered(NODES, rng)[0] for _ in range(200)} == {*NODES}


def test_names_of_racks_in_other_data_centres_are_not_shared() -> None:
    near = Nearness("/tromso/r1/h1", LOCATIONS)
    assert len({near.distance(node) for node in LOCATIONS}) == 1


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("localhost", True), ("192.0.2.7", False), ("no.such.host.invalid", False)]
)
def test_a_host_is_this_machine_if_its_address_can_be_bound(host: str, own: bool) -> None:
    assert is_own_host(host) is own
