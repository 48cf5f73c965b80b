"""Faults for running nodes, drawn from a seed: SIGKILL, SIGSTOP, partitions, bad networks, transfers of leadership.

At most one group of faults at a time, and a calm phase behind each: a run in which nothing is ever acknowledged would
show nothing. What was done is kept, with the time, for whoever has to look at a failure."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stelae.client.connection import Connection
from stelae.local.cluster import LocalCluster
from stelae.local.node_process import NodeProcess
from stelae.local.replica_status import leaders
from stelae.sim.draw import below, pick
from stelae.spi.errors import StelaeError

FAULT_S = (0.3, 3.0)
"""How long a fault lasts."""

CALM_S = (0.5, 2.0)
"""How long nothing is wrong behind it."""

BAD_NETWORK = {"drop": 0.1, "duplicate": 0.1, "reorder": 0.1, "delay_ms_max": 40}


def rules_path(node: NodeProcess) -> Path:
    """The file of rules for a node's network, as its ``node.toml`` names it."""
    return (node.directory / "network.json").resolve()


def set_rules(node: NodeProcess, rules: Sequence[dict[str, Any]]) -> None:
    """Replace the rules of a node."""
    new = node.directory / "network.new"
    new.write_text(json.dumps(rules))
    os.replace(new, rules_path(node))


class ProcessFaults:
    """Does one thing after the other to the nodes of a cluster until ``stop``.

    Attributes:
        done: how often each kind of fault was done.
        story: what was done, in order.
    """

    def __init__(self, cluster: LocalCluster, client: Connection, rng: random.Random) -> None:
        self._cluster = cluster
        self._client = client
        self._rng = rng
        self._started = time.monotonic()
        self.stopping = False
        self.done: Counter[str] = Counter()
        self.story: list[str] = []
        self._kinds: dict[str, Callable[[], Any]] = {
            "kill one": lambda: self._kill(1),
            "kill a majority": lambda: self._kill(2),
            "kill all": lambda: self._kill(3),
            "kill the leader": self._kill_leader,
            "stop one": self._pause,
            "stop the leader": self._pause_leader,
            "isolate one": lambda: self._cut(["INBOUND", "OUTBOUND"]),
            "isolate the leader": self._isolate_leader,
            "cut one way": lambda: self._cut([pick(self._rng, ("INBOUND", "OUTBOUND"))]),
            "bad network": self._bad_network,
            "transfer": self._transfer,
        }

    @property
    def kinds(self) -> frozenset[str]:
        """Names of all kinds of faults."""
        return frozenset(self._kinds)

    async def run(self) -> None:
        """Do faults, each kind once before any comes again, so that a short run has all of them."""
        while True:
            kinds = sorted(self._kinds)
            self._shuffle(kinds)
            for kind in kinds:
                if self.stopping:
                    return
                self._say(kind)
                await self._kinds[kind]()
                self.done[kind] += 1
                self._say("calm")
                await self._wait(CALM_S)
                self._cluster.check()

    async def _kill(self, count: int) -> None:
        nodes = list(self._cluster.nodes)
        self._shuffle(nodes)
        await self._down(nodes[:count])

    async def _kill_leader(self) -> None:
        leader = await self._leader()
        await self._down([leader or pick(self._rng, self._cluster.nodes)])

    async def _down(self, nodes: Sequence[NodeProcess]) -> None:
        for node in nodes:
            self._say(f"SIGKILL of {node.name}")
            node.kill()
        await self._wait(FAULT_S)
        for node in nodes:
            node.start()

    async def _pause_leader(self) -> None:
        await self._pause(await self._leader())

    async def _pause(self, node: NodeProcess | None = None) -> None:
        node = node or pick(self._rng, self._cluster.nodes)
        assert node.pid is not None
        self._say(f"SIGSTOP of {node.name}")
        os.kill(node.pid, signal.SIGSTOP)
        try:
            await self._wait(FAULT_S)
        finally:
            os.kill(node.pid, signal.SIGCONT)

    async def _cut(self, directions: Sequence[str], node: NodeProcess | None = None) -> None:
        """Cut a node off from the others; clients still reach it."""
        node = node or pick(self._rng, self._cluster.nodes)
        others = [other for other in self._cluster.nodes if other is not node]
        self._say(f"{node.name} cut off, {' and '.join(directions)}")
        set_rules(node, [{"peer": other.node_id, "directions": directions, "drop": 1.0} for other in others])
        await self._wait(FAULT_S)
        set_rules(node, [])

    async def _isolate_leader(self) -> None:
        await self._cut(["INBOUND", "OUTBOUND"], await self._leader())

    async def _bad_network(self) -> None:
        for node in self._cluster.nodes:
            set_rules(node, [BAD_NETWORK])
        await self._wait(FAULT_S)
        for node in self._cluster.nodes:
            set_rules(node, [])

    async def _transfer(self) -> None:
        """Transfer leadership, three times in a row; that it is refused now and then is no failure."""
        for _ in range(3):
            leader = await self._leader()
            if leader is not None:
                others = [node for node in self._cluster.nodes if node is not leader]
                with suppress(StelaeError):
                    target = pick(self._rng, others).node_id
                    await self._client.transfer_leadership(leader.node_id, self._cluster.tablet_id, target)
                    self._say(f"leadership from {leader.name}")

    async def _leader(self) -> NodeProcess | None:
        found = (await leaders(self._client, self._cluster.nodes)).get(self._cluster.tablet_id)
        return None if found is None else self._cluster.node(found.node_id)

    async def _wait(self, span: tuple[float, float]) -> None:
        await asyncio.sleep(span[0] + self._rng.random() * (span[1] - span[0]))

    def _shuffle(self, things: list[Any]) -> None:
        for place in range(len(things) - 1, 0, -1):
            other = below(self._rng, place + 1)
            things[place], things[other] = things[other], things[place]

    def _say(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._started:8.3f} s  {what}")
