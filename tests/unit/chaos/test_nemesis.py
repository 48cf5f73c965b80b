"""The nemesis on a target without processes: it heals whatever happens, and a node that dies by itself ends it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from stelae.cli.node_formatting import format_here
from stelae.local.chaos.node_rules import RulesKind, enable_rules
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.node_process import NodeProcess, NodeRuns
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId, TabletId
from stelae_chaos import nemesis as module
from stelae_chaos.fault_kinds import KINDS, ChaosFaultKind
from stelae_chaos.fault_target import FaultTarget
from stelae_chaos.nemesis import Nemesis, NodeDied
from stelae_chaos.plan import PlannedFault


class PaperTarget:
    """A target that counts what is done to it."""

    led_count = 1

    def __init__(self) -> None:
        self.broken = 0
        self.heals = 0
        self.dead: list[Any] = []

    async def leaders(self) -> dict[TabletId, Any]:
        return {TabletId("t"): None}

    def exited(self) -> list[Any]:
        return self.dead

    def heal(self) -> None:
        self.broken = 0
        self.heals += 1


def plan(kind: str) -> Iterator[PlannedFault]:
    return repeat(PlannedFault(kind, 0.001, True, 0.001, random.Random(1)))


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> PaperTarget:
    """A target, and two kinds of faults for it."""

    async def tear(paper: Any, rng: random.Random) -> str:
        paper.broken += 1
        return "torn"

    async def fail(paper: Any, rng: random.Random) -> str:
        paper.broken += 1
        raise Unavailable("no node answers")

    kinds = MappingProxyType({"tear": ChaosFaultKind("tear", tear), "fail": ChaosFaultKind("fail", fail)})
    monkeypatch.setattr(module, "KINDS", kinds)
    return PaperTarget()


def made(target: PaperTarget, kind: str) -> Nemesis:
    return Nemesis(target, plan(kind), lambda: 0)  # type: ignore[arg-type]


def test_every_fault_is_healed_before_the_next_one(target: PaperTarget) -> None:
    seen: list[int] = []
    nemesis = Nemesis(target, plan("tear"), lambda: 0, lambda span: seen.append(target.broken))  # type: ignore[arg-type]

    async def run() -> None:
        task = asyncio.create_task(nemesis.run())
        while len(seen) < 3:
            await asyncio.sleep(0)
        nemesis.stop()
        await task

    asyncio.run(run())
    assert {*seen} == {1}
    assert target.broken == 0
    assert nemesis.done["tear"] == len(seen)
    assert nemesis.spans[0].detail == "torn"


def test_with_a_fixed_pace_the_next_fault_waits_for_its_time(
    target: PaperTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault and its recovery count as part of the time. If they take longer, the next one begins at once."""
    now_us, begun_us = [0], list[int]()
    lengths_us = iter([4_000_000, 45_000_000, 1_000_000, 1_000_000])

    async def pause(self: Nemesis, seconds: float) -> None:
        now_us[0] += int(seconds * 1e6)
        await asyncio.sleep(0)

    async def recover(self: Nemesis) -> None:
        now_us[0] += next(lengths_us)

    def begun(span: object) -> None:
        begun_us.append(now_us[0])
        if len(begun_us) == 4:
            nemesis.stop()

    monkeypatch.setattr(Nemesis, "_pause", pause)
    monkeypatch.setattr(Nemesis, "_recover", recover)
    nemesis = Nemesis(target, plan("tear"), lambda: now_us[0], begun, every_s=30.0)  # type: ignore[arg-type]
    asyncio.run(nemesis.run())
    assert begun_us == [0, 30_000_000, 75_001_000, 105_001_000]


def test_a_fault_that_fails_is_healed_too(target: PaperTarget) -> None:
    with pytest.raises(Unavailable):
        asyncio.run(made(target, "fail").run())
    assert target.broken == 0


def test_a_node_that_has_ended_by_itself_ends_the_run(target: PaperTarget, tmp_path: Path) -> None:
    target.dead = [NodeProcess("tserver-1", NodeId("a" * 32), "127.0.0.1:1", tmp_path)]
    with pytest.raises(NodeDied, match="tserver-1 has ended by itself"):
        asyncio.run(made(target, "tear").run())
    assert target.broken == 0


def nodes(folder: Path, count: int) -> list[NodeProcess]:
    """Nodes that do not run, each with a ``node.toml``."""
    found = []
    for number in range(count):
        node = NodeProcess(f"tserver-{number}", NodeId(f"{number}" * 32), "127.0.0.1:1", folder / f"tserver-{number}")
        node.directory.mkdir()
        node.config_path.write_text("[node]\n")
        found.append(node)
    return found


def of(servers: list[NodeProcess]) -> FaultTarget:
    return FaultTarget((), servers, [TabletId("t")], None, outlive=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["kill-all", "lose-disk"])
def test_a_node_that_has_ended_by_itself_is_not_killed_so_that_it_is_found(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a fault waits for leaders or for a whole cluster, a node may crash. A kill would pass for its end."""
    target = of(nodes(tmp_path, 2))

    async def problems() -> list[str]:
        return ["tserver-1 does not answer"]

    killed: list[NodeProcess] = []
    monkeypatch.setattr(target, "problems", problems)
    monkeypatch.setattr(target, "kill", killed.append)
    monkeypatch.setattr(target, "exited", lambda: target.servers)
    told = asyncio.run(KINDS[kind].inflict(target, random.Random(1)))
    assert killed == []
    assert "has ended by itself" in told


def test_a_killed_node_that_another_command_has_started_does_not_keep_the_others_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --dir, ``stelae cluster up`` may start the nodes while a fault lasts."""
    servers = nodes(tmp_path, 3)
    target = of(servers)
    started: list[NodeProcess] = []

    def start(node: NodeProcess, *, outlive: bool) -> None:
        if node is servers[0]:
            raise NodeRuns("tserver-0 runs already")
        started.append(node)

    monkeypatch.setattr(NodeProcess, "start", start)
    for node in servers:
        target.kill(node)
    target.heal()
    assert started == servers[1:]
    target.heal()
    assert started == servers[1:]


def test_kinds_that_a_target_does_not_have_say_why(tmp_path: Path) -> None:
    servers = nodes(tmp_path, 2)
    enable_rules(servers[0])
    enable_rules(servers[1], RulesKind.NETWORK)
    target = of(servers)
    assert KINDS["kill-one"].why_not(target) == KINDS["isolate-one"].why_not(target) == ""
    assert "disk_rules" in KINDS["slow-disk"].why_not(target)
    assert "no masters" in KINDS["kill-master"].why_not(target)
    with_masters = FaultTarget(servers[:1], servers[1:], [TabletId("t")], None, outlive=True)  # type: ignore[arg-type]
    assert "only with --up" in KINDS["lose-disk"].why_not(with_masters)


def test_a_server_is_only_killed_while_a_tablet_could_lose_its_majority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server,) = nodes(tmp_path, 1)
    kept = server.directory / "data" / "wals"
    kept.mkdir(parents=True)
    target = of([server])

    async def problems() -> list[str]:
        return ["tablet t lacks a replica"]

    killed: list[NodeProcess] = []
    monkeypatch.setattr(target, "problems", problems)
    monkeypatch.setattr(target, "kill", killed.append)
    monkeypatch.setattr(target, "exited", list)
    told = asyncio.run(KINDS["lose-disk"].inflict(target, random.Random(1)))
    assert killed == [server] and kept.exists()
    assert "which keeps its disk" in told and "tablet t lacks a replica" in told


def test_a_server_that_loses_its_disk_comes_back_empty_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ClusterOptions(node_count=2)
    cluster = ClusterWithMasters.create(tmp_path / "c", options, masters=1, formatted=format_here)
    target = FaultTarget(
        cluster.masters,
        cluster.servers,
        [TabletId("t")],
        None,
        outlive=False,
        disposable=cluster,  # type: ignore[arg-type]
    )

    async def problems() -> list[str]:
        return []

    monkeypatch.setattr(target, "problems", problems)
    before = {node.name: (node.node_id, node.address) for node in cluster.servers}
    (cluster.servers[0].directory / "data" / "wals" / "something").touch()
    (cluster.servers[1].directory / "data" / "wals" / "something").touch()
    told = asyncio.run(KINDS["lose-disk"].inflict(target, random.Random(1)))
    (lost,) = [node for node in cluster.servers if before[node.name][0] != node.node_id]
    assert lost.name in told and lost.address == before[lost.name][1] and lost in target.servers
    assert not (lost.directory / "data" / "wals" / "something").exists()
    assert ClusterWithMasters.open(tmp_path / "c").servers[cluster.servers.index(lost)].node_id == lost.node_id


@pytest.mark.parametrize(
    "kind", ["isolate-one", "cut-one-way", "bad-network", "slow-links", "slow-disk", "skew-clocks"]
)
def test_rules_are_written_for_a_fault_and_empty_when_it_is_healed(kind: str, tmp_path: Path) -> None:
    servers = nodes(tmp_path, 3)
    for node in servers:
        enable_rules(node)
    target = of(servers)
    asyncio.run(KINDS[kind].inflict(target, random.Random(3)))
    written = [*tmp_path.glob("*/*_rules.json")]
    assert written and all(path.read_text() != "[]" for path in written)
    target.heal()
    assert {path.read_text() for path in written} == {"[]"}
