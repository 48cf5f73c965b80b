"""``stelae policy simulate``: the phases of the simulation, and the figures of each phase."""

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
"""The figures of one phase, as a JSON document."""
LEVELS = ("data centre", "rack", "host")


class PolicySimulation:
    """One simulation. The same arguments give the same figures, except for times."""

    def __init__(self, policy: type[MasterPolicy], *, servers: int, tablets: int, replication: int, seed: int) -> None:
        self._policy = policy
        self._config = policy.Config()
        self._rng = random.Random(seed)
        self._cluster = PolicyCluster(seed)
        self._cluster.join(servers)
        self._sizes = (servers, tablets, replication)

    def run(self, plans_max: int) -> Iterator[Phase]:
        """Run the phases in order. Yield the figures of each after its plans have been applied."""
        cluster, (servers, tablets, replication) = self._cluster, self._sizes
        victims = list(cluster.nodes)
        joining = max(1, servers // 100)
        phases: list[tuple[str, Callable[[], None], int]] = [
            (f"{tablets} tablets are created", lambda: cluster.create(tablets, replication), 10_000),
            ("tablets have grown", cluster.grow, plans_max),
            ("a server is dead", lambda: cluster.set_health(victims[0], NodeHealth.DEAD), plans_max),
            (f"{joining} empty servers join", lambda: cluster.join(joining), plans_max),
            ("a server retires", lambda: cluster.set_health(victims[-1], NodeHealth.RETIRING), plans_max),
        ]
        for name, change_cluster, limit in phases:
            change_cluster()
            yield self._phase(name, limit)

    def _phase(self, name: str, plans_max: int) -> Phase:
        times: list[float] = []
        processor: list[float] = []
        actions, rest = Counter[str](), False
        while len(times) < plans_max and not rest:
            before, worked = time.perf_counter(), time.process_time()
            plan = self._policy.plan(self._cluster.snapshot(), self._config, self._rng)
            times.append(time.perf_counter() - before)
            processor.append(time.process_time() - worked)
            actions += self._cluster.apply(plan)
            rest = not plan
        return {
            "phase": name,
            "at_rest": rest,
            "plans": len(times),
            "plan_seconds_max": round(max(times), 3),
            "plan_seconds_total": round(sum(times), 3),
            "plan_processor_seconds_max": round(max(processor), 3),
            "actions": dict(sorted(actions.items())),
            "spread": spread(self._cluster),
            "locations": per_location(self._cluster),
            "shared": shared(self._cluster),
        }


def spread(cluster: PolicyCluster) -> Phase:
    """Return the load of servers in percent of the ideal: the least, the most, and the standard deviation."""
    loads, shares = _loads(cluster), _shares(cluster)
    found = {}
    for what, amounts in loads.items():
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


def per_location(cluster: PolicyCluster) -> Phase:
    """Return the load of each data centre, in percent of its share of the total disk space."""
    loads, shares = _loads(cluster), _shares(cluster)
    found: Phase = {}
    for centre in sorted({_part(cluster, node, 1) for node in shares}):
        inside = [node for node in shares if _part(cluster, node, 1) == centre]
        share = sum(shares[node] for node in inside)
        row: dict[str, float] = {"servers": len(inside)}
        for what, amounts in loads.items():
            total = sum(amounts.values())
            here = sum(amounts[node] for node in inside)
            row[f"{what}_percent"] = round(100 * here / (total * share), 1) if total else 100.0
        found[centre] = row
    return found


def shared(cluster: PolicyCluster) -> dict[str, int]:
    """Return, for each level of locations, how many tablets have two replicas in one place.

    Tablets with more replicas than they need are not counted, because a replica of them is being moved."""
    places = {node: [_part(cluster, node, level) for level in (1, 2, 3)] for node in cluster.nodes}
    found = dict.fromkeys(LEVELS, 0)
    for tablet in cluster.tablets.values():
        if len(tablet.replicas) > tablet.replication_factor:
            continue
        for at, level in enumerate(LEVELS):
            found[level] += len({places[r.node_id][at] for r in tablet.replicas}) < len(tablet.replicas)
    return found


def phase_lines(phase: Phase) -> Iterator[str]:
    """Yield the lines that print a phase."""
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


def _loads(cluster: PolicyCluster) -> dict[str, Counter[NodeId]]:
    replicas, leaders, sizes = Counter[NodeId](), Counter[NodeId](), Counter[NodeId]()
    for tablet in cluster.tablets.values():
        for replica in tablet.replicas:
            replicas[replica.node_id] += 1
            sizes[replica.node_id] += replica.size_bytes
            if replica.role is Role.LEADER:
                leaders[replica.node_id] += 1
    live = [node_id for node_id, node in cluster.nodes.items() if node.health is NodeHealth.LIVE]
    loads = {"replicas": replicas, "leaders": leaders, "bytes": sizes}
    return {what: Counter({node: amounts[node] for node in live}) for what, amounts in loads.items()}


def _shares(cluster: PolicyCluster) -> dict[NodeId, float]:
    """Return the share of each live server in the total disk space, used and free."""
    used = Counter[NodeId]()
    for tablet in cluster.tablets.values():
        for replica in tablet.replicas:
            used[replica.node_id] += replica.size_bytes
    live = [node for node in cluster.nodes.values() if node.health is NodeHealth.LIVE]
    capacity = {node.node_id: max(1, used[node.node_id] + node.free_bytes) for node in live}
    total = sum(capacity.values())
    return {node: amount / total for node, amount in capacity.items()}


def _part(cluster: PolicyCluster, node: NodeId, level: int) -> str:
    return "/".join(cluster.nodes[node].location.split("/")[: level + 1])


def _table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    cells = [list(headers), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
