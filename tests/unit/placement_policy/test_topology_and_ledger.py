"""Locations and amounts: what sharing a place costs, and when a move is worth a copy."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae_placement_policy.config import PlacementConfig
from stelae_placement_policy.ledger import Ledger
from stelae_placement_policy.topology import Topology

PLACES = ("/a/r1/h1", "/a/r1/h1", "/a/r1/h2", "/a/r2/h3", "/b/r3/h4", "/b", "/b", "", "")


def topology(*locations: str) -> Topology:
    return Topology(locations, range(len(locations)), [1.0] * len(locations))


@pytest.mark.parametrize(
    ("fewer", "more"),
    [
        ((0, 4), (0, 3)),  # two data centres, not one
        ((0, 3), (0, 2)),  # two racks, not one
        ((0, 2), (0, 1)),  # two hosts, not one
        ((0, 2, 4), (0, 2, 3)),  # a pair less in a data centre outweighs a rack
        ((5, 6), (0, 1)),  # what is not said is taken to differ
        ((0, 7), (7, 8)),  # no location is one location
    ],
)
def test_the_coarser_place_that_is_shared_costs_more(fewer: tuple[int, ...], more: tuple[int, ...]) -> None:
    places = topology(*PLACES)
    assert places.cost(fewer) < places.cost(more)


def test_replicas_that_share_nothing_cost_nothing() -> None:
    assert topology("/a/r/h", "/b/r/h", "/c/r/h").cost([0, 1, 2]) == 0


@given(st.lists(st.sampled_from(PLACES), min_size=1, max_size=8), st.integers(1, 5))
def test_what_is_attainable_costs_no_more_than_any_choice_of_first_nodes(places: list[str], replicas: int) -> None:
    tree = topology(*places)
    chosen = list(range(min(replicas, len(places))))
    assert tree.attainable(replicas) <= tree.cost(chosen)


def ledger(*used_and_free: tuple[int, int]) -> Ledger:
    used, free = zip(*used_and_free, strict=True)
    made = Ledger(PlacementConfig(), used, free, [True] * len(used))
    made.normalise(12, 0)
    return made


def test_shares_follow_disk_space_used_or_free() -> None:
    assert ledger((50, 50), (0, 200), (100, 0)).shares == [0.25, 0.5, 0.25]


def test_a_move_that_would_only_swap_two_servers_closes_no_gap() -> None:
    books = ledger((0, 100), (0, 100))
    books.count[:] = [3, 2]
    books.normalise(5, 0)
    assert books.gap(0, 0, 1) == pytest.approx(0)
    assert books.gap(0, 1, 0) < 0
    books.count[:] = [4, 2]
    books.normalise(6, 0)
    assert books.gap(0, 0, 1) > 0


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 900), st.integers(1, 1000)), min_size=2, max_size=5),
    st.integers(0, 300),
)
def test_a_gap_above_zero_is_a_fall_of_the_potential(nodes: list[tuple[int, int, int]], size: int) -> None:
    books = Ledger(PlacementConfig(), [n[1] for n in nodes], [n[2] for n in nodes], [True] * len(nodes))
    books.count[:] = [n[0] + 1 for n in nodes]
    books.bytes[:] = [n[1] + size for n in nodes]
    books.normalise(sum(books.count), sum(books.bytes))
    before, gap, relief = potential(books), books.gap(size, 0, 1), books.relief(0, size)
    books.drop(0, size)
    assert before - potential(books) == pytest.approx(relief, abs=1e-9)
    books.add(1, size)
    after = potential(books)
    assert (after < before) == (gap > 0) or after == pytest.approx(before, abs=1e-9)


def potential(books: Ledger) -> float:
    part = books._bytes_part
    return sum(
        share * ((1 - part) * books.by_count[node] ** 2 + part * books.by_bytes[node] ** 2)
        for node, share in enumerate(books.shares)
    )


def test_a_copy_of_a_ledger_is_its_own() -> None:
    books = ledger((0, 10), (0, 10))
    trial = books.copy()
    trial.add(0, 5)
    assert (books.count, books.bytes, books.by_count[0]) == ([0, 0], [0, 0], 0.0)
    assert trial.count == [1, 0]


def test_room_is_taken_once_and_not_given_back_before_it_is_seen_to_be_free() -> None:
    books = ledger((0, 100), (0, 100))
    whole = books.room[0]
    books.add(0, 30)
    books.drop(0, 30)
    books.restore(0, 30)
    assert (books.room[0], books.count[0], books.bytes[0]) == (whole - 30, 1, 30)


def test_drawing_reaches_every_open_node_in_proportion() -> None:
    tree = Topology(["/a", "/b", "/c"], [0, 2], [0.25, 0.0, 0.75])
    assert tree.root.nodes == [0, 2]
    assert tree.root.weights == [0.25, 1.0]
    rng = random.Random(1)
    assert all(0 <= rng.random() * tree.root.reach < 1 for _ in range(10))
