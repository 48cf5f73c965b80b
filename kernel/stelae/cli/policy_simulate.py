"""Behind ``stelae policy simulate``: what happens to the cluster in memory, and the figures of each phase."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stelae.cli.policy_cluster import PolicyCluster
from stelae.spi.consensus import Role
from stelae.spi.ids import NodeId
from stelae.spi.policy import MasterPolicy, NodeHealth

Phase = dict[str, Any]
"""One phase as a JSON document."""
LEVELS = ("data centre", "rack", "host")


class PolicySimulation:
    """One run. The same arguments give the same figures, but for times."""

    def __init__(self, policy: type[MasterPolicy], *, servers: int, tablets: int, replication: int, seed: int) -> None:
        self._policy = policy
        self._config = policy.Config()
        self._rng = random.Random(seed)
        self._world = PolicyCluster(seed)
        self._world.join(servers)
        self._sizes = (servers, tablets, replication)

    def run(self, plans_max: int) -> Iterator[Phase]:
        """Let one thing after another happen; yield each phase when its plans are carried out."""
        world, (servers, tablets, replication) = self._world, self._sizes
        victims = list(world.nodes)
        joining = max(1, servers // 100)
        happenings: list[tuple[str, Callable[[], None], int]] = [
            (f"{tablets} tablets are created", lambda: world.create(tablets, replication), 10_000),
            ("tablets have grown", world.grow, plans_max),
            ("a server is dead", lambda: world.set_health(victims[0], NodeHealth.DEAD), plans_max),
            (f"{joining} empty servers join", lambda: world.join(joining), plans_max),
            ("a server retires", lambda: world.set_health(victims[-1], NodeHealth.RETIRING), plans_max),
        ]
        for name, happen, limit in happenings:
            happen()
            yield self._phase(name, limit)

    def _phase(self, name: str, plans_max: int) -> Phase:
        times: list[float] = []
        processor: list[float] = []
        actions, rest = Counter[str](), False
        while len(times) < plans_max and not rest:
            before, worked = time.perf_counter(), time.process_time()
            plan = self._policy.plan(self._world.snapshot(), self._config, self._rng)
            times.append(time.perf_counter() - before)
            processor.append(time.process_time() - worked)
            actions += self._world.apply(plan)
            rest = not plan
        return {
            "phase": name,
            "at_rest": rest,
            "plans": len(times),
            "plan_seconds_max": round(max(times), 3),
            "plan_seconds_total": round(sum(times), 3),
            "plan_processor_seconds_max": round(max(processor), 3),
            "actions": dict(sorted(actions.items())),
            "spread": spread(self._world),
            "locations": per_location(self._world),
            "shared": shared(self._world),
        }


def spread(world: PolicyCluster) -> Phase:
    """How far servers are from their ideal, in percent of it: the least, the most, and the standard deviation."""
    held, shares = _held(world), _shares(world)
    found = {}
    for what, amounts in held.items():
        total = sum(amounts.values())
        ratios = [100 * amounts[node] / (total * share) if total else 100.0 for node, share in shares.items()]
        mean = math.fsum(ratios) / max(1, len(ratios))
        deviation = math.sqrt(math.fsum((ratio - mean) ** 2 for ratio in ratios) / max(1, len(ratios)))
        mean_ideal = total / max(1, len(shares))
        found[what] = {
            "total": total,
            "ideal_mean": round(mean_ideal, 1),
            "min_percent": round(min(ratios, default=0.0), 1),
            "max_percent": round(max(ratios, default=0.0), 1),
            "deviation_percent": round(deviation, 2),
        }
    return found


def per_location(world: PolicyCluster) -> Phase:
    """What each data centre has, in percent of its share of all disk space."""
    held, shares = _held(world), _shares(world)
    found: Phase = {}
    for centre in sorted({_part(world, node, 1) for node in shares}):
        inside = [node for node in shares if _part(world, node, 1) == centre]
        share = sum(shares[node] for node in inside)
        row: dict[str, float] = {"servers": len(inside)}
        for what, amounts in held.items():
            total = sum(amounts.values())
            here = sum(amounts[node] for node in inside)
            row[f"{what}_percent"] = round(100 * here / (total * share), 1) if total else 100.0
        found[centre] = row
    return found


def shared(world: PolicyCluster) -> dict[str, int]:
    """How many tablets have two replicas in one place, at each level of locations; those with a member too many,
    which are on their way, are left out."""
    places = {node: [_part(world, node, level) for level in (1, 2, 3)] for node in world.nodes}
    found = dict.fromkeys(LEVELS, 0)
    for tablet in world.tablets.values():
        if len(tablet.replicas) > tablet.replication_factor:
            continue
        for at, level in enumerate(LEVELS):
            found[level] += len({places[r.node_id][at] for r in tablet.replicas}) < len(tablet.replicas)
    return found


def phase_lines(phase: Phase) -> Iterator[str]:
    """A phase as text for people."""
    state = "at rest" if phase["at_rest"] else "not at rest yet"
    times = f"{phase['plan_seconds_total']:.1f} s, the slowest {phase['plan_seconds_max']:.1f} s"
    times += f" ({phase['plan_processor_seconds_max']:.1f} s of processor time)"
    yield f"== {phase['phase']}: {phase['plans']} plans in {times}; {state}"
    counts = ", ".join(f"{count} {kind}" for kind, count in phase["actions"].items())
    yield f"planned: {counts or 'nothing'}"
    rows = [
        (what, row["total"], row["ideal_mean"], row["min_percent"], row["max_percent"], row["deviation_percent"])
        for what, row in phase["spread"].items()
    ]
    yield from _table(("PER SERVER", "TOTAL", "IDEAL MEAN", "LEAST %", "MOST %", "DEVIATION %"), rows)
    rows = [(name, *row.values()) for name, row in phase["locations"].items()]
    yield from _table(("LOCATION", "SERVERS", "REPLICAS %", "LEADERS %", "BYTES %"), rows)
    yield "tablets with two replicas in one " + ", ".join(f"{k}: {v}" for k, v in phase["shared"].items())


def _held(world: PolicyCluster) -> dict[str, Counter[NodeId]]:
    replicas, leaders, sizes = Counter[NodeId](), Counter[NodeId](), Counter[NodeId]()
    for tablet in world.tablets.values():
        for replica in tablet.replicas:
            replicas[replica.node_id] += 1
            sizes[replica.node_id] += replica.size_bytes
            if replica.role is Role.LEADER:
                leaders[replica.node_id] += 1
    live = [node_id for node_id, node in world.nodes.items() if node.health is NodeHealth.LIVE]
    held = {"replicas": replicas, "leaders": leaders, "bytes": sizes}
    return {what: Counter({node: amounts[node] for node in live}) for what, amounts in held.items()}


def _shares(world: PolicyCluster) -> dict[NodeId, float]:
    """Each live server's share of all disk space, used or free."""
    used = Counter[NodeId]()
    for tablet in world.tablets.values():
        for replica in tablet.replicas:
            used[replica.node_id] += replica.size_bytes
    live = [node for node in world.nodes.values() if node.health is NodeHealth.LIVE]
    capacity = {node.node_id: max(1, used[node.node_id] + node.free_bytes) for node in live}
    whole = sum(capacity.values())
    return {node: amount / whole for node, amount in capacity.items()}


def _part(world: PolicyCluster, node: NodeId, level: int) -> str:
    return "/".join(world.nodes[node].location.split("/")[: level + 1])


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    cells = [list(headers), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
