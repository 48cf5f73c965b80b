"""Rounds: their order, what a measurement gets beside its result, and what ends them."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stelae.spi.ids import TabletId
from stelae_bench.cluster_context import Bench, ClusterMeasure
from stelae_bench.cluster_costs import UNKNOWN_COST, Cost
from stelae_bench.measured_round import ClusterRound, cost_fields, quotients
from stelae_bench.peer_figures import PeerFigures
from stelae_bench.peers import PeerCommand, PeerTask
from stelae_bench.report import ClusterReport

T = TabletId("t")
COST = Cost(client_s=1.0, leader_s=1.0, followers_s=1.0, switches=3, entries=1, written=2)


class Meter:
    """Says what it was asked to measure, and that everything costs the same."""

    def __init__(self) -> None:
        self.asked: list[tuple[TabletId, Sequence[int]]] = []

    async def measured(
        self, tablet_id: TabletId, further_clients: Sequence[int], run: Callable[[], Awaitable[Any]]
    ) -> tuple[Any, Cost]:
        self.asked.append((tablet_id, further_clients))
        return await run(), COST

    def nodes_cpu_s(self) -> float:
        return 1.0


def bench(rounds: int, peers: Sequence[PeerCommand] = (), directory: Path | None = None) -> Bench:
    settings: Any = SimpleNamespace(rounds=rounds, peers=peers, peer_timeout_s=60.0, directory=directory)
    cluster: Any = SimpleNamespace(check=lambda: None)
    client: Any = None
    meter: Any = Meter()
    report = ClusterReport(peers={one.name: PeerFigures(command=one.text) for one in peers})
    return Bench(
        cluster=cluster,
        client=client,
        settings=settings,
        report=report,
        note=lambda _: None,
        rng=random.Random(1),
        meter=meter,
    )


def one_round(ops_per_s: float = 1.0) -> ClusterRound:
    return ClusterRound(writes=10, ops_per_s=ops_per_s, p50_ms=1.0, p99_ms=2.0)


async def measure(log: list[str], name: str) -> ClusterRound:
    log.append(name)
    return one_round()


def test_each_result_has_the_number_of_its_round_and_its_cost() -> None:
    found, log = bench(3), list[str]()
    own = ClusterMeasure(run=partial(measure, log, "own"), tablet_id=T, further_clients=[7])
    other = ClusterMeasure(run=partial(measure, log, "other"))
    asyncio.run(found.rounds("writes", [own, other]))
    assert [(one.number, one.cost) for one in own.rounds] == [(0, COST), (1, COST), (2, COST)]
    assert [(one.number, one.cost) for one in other.rounds] == [(n, UNKNOWN_COST) for n in range(3)]
    assert found.meter.asked == [(T, [7])] * 3  # type: ignore[attr-defined]
    assert Counter(log) == {"own": 3, "other": 3}


def test_a_problem_ends_the_rounds_at_once() -> None:
    found, log = bench(5), list[str]()

    async def fails() -> None:
        log.append("fails")
        found.report.problems.append("a row is missing")

    asyncio.run(found.rounds("writes", [ClusterMeasure(run=fails), ClusterMeasure(run=fails)]))
    assert log == ["fails"]


def test_retries_before_the_rounds_are_not_counted() -> None:
    found = bench(1)
    table: Any = SimpleNamespace(retries={"NOT_LEADER": 64})
    found.tables.append(table)

    async def run() -> None:
        table.retries = {"NOT_LEADER": 65, "UNAVAILABLE": 2}

    asyncio.run(found.rounds("writes", [ClusterMeasure(run=run)]))
    assert found.report.retries == {"NOT_LEADER": 1, "UNAVAILABLE": 2}


def test_peers_run_once_in_each_round_and_the_order_rotates(tmp_path: Path) -> None:
    """Whatever always ran first would always find the machine as the one before left it."""
    path, log = tmp_path / "order", list[str]()
    script = f'open({str(path)!r}, \'a\').write(NAME); print(\'{{"work": "write", "in_flight": 1, "ops_per_s": 2}}\')'
    for name in "ab":
        (tmp_path / f"{name}.py").write_text(script.replace("NAME", repr(name)))
    peers = [PeerCommand.parse(f"{name}={sys.executable} {tmp_path / name}.py") for name in "ab"]
    found = bench(4, peers, tmp_path)

    async def run() -> ClusterRound:
        with path.open("a") as file:
            file.write("s")
        return await measure(log, "own")

    task = PeerTask(part="writes", in_flight=[1], seconds=0.1)
    asyncio.run(found.rounds("writes", [ClusterMeasure(run=run, tablet_id=T)], task))
    assert path.read_text() == "sab" + "abs" + "bsa" + "sab"
    figures = found.report.peers["a"]
    assert [one.number for one in figures.rounds["write", 1]] == [0, 1, 2, 3]
    assert figures.idle_cpu_shares == [0.0] * 4
    asyncio.run(found.rounds("scan", [ClusterMeasure(run=run)]))
    assert path.read_text()[12:] == "s" * 4, "a part that no peer measures has no turn of a peer"


def test_a_peer_that_fails_is_left_out_from_then_on_and_what_was_measured_is_kept(tmp_path: Path) -> None:
    """The whole run was lost, with all that had been measured."""
    script, log = tmp_path / "peer.py", list[str]()
    script.write_text(
        "import os\n"
        "assert os.environ['STELAE_BENCH_ROUND'] != '3', 'the port is in use'\n"
        """print('{"work": "write", "in_flight": 1, "ops_per_s": 2}')"""
    )
    peers = [PeerCommand.parse(f"{name}={sys.executable} {script}") for name in ("a", "b")]
    found = bench(4, peers, tmp_path)
    own = ClusterMeasure(run=partial(measure, log, "own"))
    asyncio.run(found.rounds("writes", [own], PeerTask(part="writes", in_flight=[1], seconds=0.1)))
    assert [one.number for one in own.rounds] == [0, 1, 2, 3]
    for peer in found.report.peers.values():
        assert [one.number for one in peer.rounds["write", 1]] == [0, 1]
        assert peer.failure.startswith("round 3 of writes: peer ") and "the port is in use" in peer.failure
    assert found.report.is_sound and not found.report.ok


def test_a_round_that_only_one_side_has_is_no_quotient() -> None:
    def numbered(*rates: float, first: int = 0) -> list[ClusterRound]:
        return [
            ClusterRound(number=first + place, writes=1, ops_per_s=rate, p50_ms=1.0, p99_ms=1.0)
            for place, rate in enumerate(rates)
        ]

    def rate(one: ClusterRound) -> float:
        return one.ops_per_s

    assert quotients(numbered(1.0, 2.0, 3.0), numbered(4.0, 5.0, 6.0, first=1), rate, rate) == [0.5, 0.6]


def test_costs_are_per_operation_and_spread_over_the_rounds() -> None:
    cheap = Cost(client_s=1e-6, leader_s=2e-6, followers_s=3e-6, switches=1, entries=1, written=64)
    rounds = [
        ClusterRound(cost=one, writes=count, ops_per_s=1.0, p50_ms=1.0, p99_ms=1.0)
        for one, count in ((cheap, 1), (cheap, 2), (UNKNOWN_COST, 5))
    ]
    found = cost_fields(rounds)
    assert (found["cpu_us_per_op"], found["cpu_us_per_op_min"], found["cpu_us_per_op_max"]) == (4.5, 3.0, 6.0)
    assert (found["leader_cpu_us_per_op"], found["switches_per_op"], found["ops_per_entry"]) == (1.5, 0.75, 64.0)
