"""The kinds of faults. A new kind is one entry of ``KINDS``.

A fault breaks something and returns what it has done, for people. The nemesis waits, and heals everything that is
broken. A kind that needs more than processes says so in ``needs``; it is left out where the target does not have it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stelae.local.chaos.node_rules import RulesKind
from stelae.local.node_process import NodeProcess
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.sim.draw import between, pick
from stelae.spi.errors import CallerError, StelaeError
from stelae.spi.ids import TabletId
from stelae_chaos.fault_target import LONG_TIMEOUT_S, FaultTarget
from stelae_chaos.member_faults import change_members
from stelae_chaos.plan import shuffled

BAD_NETWORK: Final = {"drop": 0.1, "duplicate": 0.1, "reorder": 0.1, "delay_ms_max": 40}
SLOW_LINKS: Final = {"delay_ms_min": 60, "delay_ms_max": 160}
SLOW_DISK_MS: Final = (20, 120)
"""The shortest and the longest delay of a write or a sync on a slow disk."""

SKEW_MS_MAX: Final = 230
"""How far a clock is ahead or behind. Two such clocks differ by less than the 500 ms that nodes allow by default."""

TRANSFERS: Final = 3

BOTH: Final = ("INBOUND", "OUTBOUND")


class UnknownFault(CallerError, code="UNKNOWN_FAULT"):
    """A fault was asked for that does not exist."""


Inflict = Callable[[FaultTarget, random.Random], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class ChaosFaultKind:
    """One kind of fault.

    Attributes:
        text: what it does, for the help of the command.
        inflict: breaks something, and returns what it has done.
        needs: the rules that the nodes must have.
        needs_masters: whether the cluster must have masters.
        destroys: whether data are gone for good, which only a cluster of the run's own may suffer.
    """

    text: str
    inflict: Inflict
    needs: RulesKind | None = None
    needs_masters: bool = False
    destroys: bool = False

    def why_not(self, target: FaultTarget) -> str:
        """Return why the kind is not possible on a target; empty: it is possible."""
        if self.needs is not None and not target.has_rules(self.needs):
            return f"not every node.toml names a file of {self.needs} in its section [chaos]"
        if self.needs_masters and not target.masters:
            return "the cluster has no masters"
        if self.destroys and not target.disposable:
            return "it destroys what a node has stored: only with --up"
        return ""


async def _leader(target: FaultTarget, rng: random.Random, tablets: Sequence[TabletId] = ()) -> NodeProcess:
    """Return the leader of a tablet that is drawn. If none is known, a node that could lead it."""
    tablet_id = pick(rng, tablets or target.tablets)
    found = (await target.leaders()).get(tablet_id)
    return found or pick(rng, target.masters if tablet_id == SYSTEM_TABLET else target.servers)


def _kill(target: FaultTarget, nodes: Sequence[NodeProcess]) -> str:
    """Kill nodes. One that has ended by itself is left as it is: the nemesis must find it."""
    ended = [node for node in target.exited() if node in nodes]
    killed = [node for node in nodes if node not in ended]
    for node in killed:
        target.kill(node)
    told = [f"SIGKILL of {_names(killed)}"] if killed else []
    told += [f"{node.name} has ended by itself" for node in ended]
    return ", ".join(told)


def _names(nodes: Sequence[NodeProcess]) -> str:
    return ", ".join(sorted(node.name for node in nodes))


async def kill_one(target: FaultTarget, rng: random.Random) -> str:
    return _kill(target, [pick(rng, target.servers)])


async def kill_long(target: FaultTarget, rng: random.Random) -> str:
    """Kill a tablet server for so long that the masters begin to replace its replicas. Then the fault ends as planned:
    sometimes before a new replica has its vote, and sometimes after the old one was removed."""
    before = await target.members()
    holders = frozenset().union(*before.values())
    node = pick(rng, [server for server in target.servers if server.node_id in holders] or target.servers)
    killed = _kill(target, [node])
    if await target.until_replacing(node, before):
        return f"{killed} until the masters began to replace its replicas"
    return f"{killed} for {LONG_TIMEOUT_S:.0f} s, but the masters did not begin to replace its replicas"


async def kill_majority(target: FaultTarget, rng: random.Random) -> str:
    return _kill(target, shuffled(rng, target.servers)[: len(target.servers) // 2 + 1])


async def kill_all(target: FaultTarget, rng: random.Random) -> str:
    return _kill(target, target.servers)


async def kill_leader(target: FaultTarget, rng: random.Random) -> str:
    return _kill(target, [await _leader(target, rng)])


async def kill_master(target: FaultTarget, rng: random.Random) -> str:
    return _kill(target, [await _leader(target, rng, [SYSTEM_TABLET])])


async def lose_disk(target: FaultTarget, rng: random.Random) -> str:
    """Destroy what a tablet server has stored. Unless every tablet has all of its replicas soon, only kill it."""
    node = pick(rng, target.servers)
    if problems := await target.problems():
        killed = _kill(target, [node])
        return f"{killed}, which keeps its disk, because a tablet could lose its majority: {problems[0]}"
    target.lose_disk(node)
    return f"SIGKILL of {node.name}, which has lost its disk and comes back with a new uuid"


async def stop_one(target: FaultTarget, rng: random.Random) -> str:
    return _suspend(target, pick(rng, target.nodes))


async def stop_leader(target: FaultTarget, rng: random.Random) -> str:
    return _suspend(target, await _leader(target, rng))


def _suspend(target: FaultTarget, node: NodeProcess) -> str:
    target.suspend(node)
    return f"SIGSTOP of {node.name}"


async def isolate_one(target: FaultTarget, rng: random.Random) -> str:
    return _cut_off(target, pick(rng, target.nodes), BOTH)


async def isolate_leader(target: FaultTarget, rng: random.Random) -> str:
    return _cut_off(target, await _leader(target, rng), BOTH)


async def cut_one_way(target: FaultTarget, rng: random.Random) -> str:
    return _cut_off(target, pick(rng, target.nodes), [pick(rng, BOTH)])


def _cut_off(target: FaultTarget, node: NodeProcess, directions: Sequence[str]) -> str:
    target.cut_off(node, directions)
    return f"{node.name} is cut off from the other nodes, {' and '.join(directions).lower()}"


async def bad_network(target: FaultTarget, rng: random.Random) -> str:
    for node in target.nodes:
        target.set_rules(node, RulesKind.NETWORK, [BAD_NETWORK])
    return "messages of all nodes are lost, repeated, reordered and delayed"


async def slow_links(target: FaultTarget, rng: random.Random) -> str:
    node = pick(rng, target.nodes)
    target.set_rules(node, RulesKind.NETWORK, [SLOW_LINKS])
    low, high = SLOW_LINKS["delay_ms_min"], SLOW_LINKS["delay_ms_max"]
    return f"every message of {node.name} takes {low} to {high} ms longer"


async def slow_disk(target: FaultTarget, rng: random.Random) -> str:
    node, delay_ms = pick(rng, target.nodes), between(rng, *SLOW_DISK_MS)
    target.set_rules(node, RulesKind.DISK, [{"operations": ["write", "sync"], "delay_ms": delay_ms}])
    return f"every write and sync of {node.name} takes {delay_ms} ms longer"


async def skew_clocks(target: FaultTarget, rng: random.Random) -> str:
    ahead_ms = {node: between(rng, -SKEW_MS_MAX, SKEW_MS_MAX) for node in target.nodes}
    for node, ms in ahead_ms.items():
        target.set_rules(node, RulesKind.CLOCK, [{"ahead_ms": ms}])
    return "clocks: " + ", ".join(f"{node.name} {ms:+} ms" for node, ms in ahead_ms.items())


async def transfer(target: FaultTarget, rng: random.Random) -> str:
    """Transfer the leadership of some tablets. A refusal is not a failure: the leader may have changed already."""
    told = []
    for _ in range(TRANSFERS):
        tablet_id = pick(rng, target.tablets)
        leader = (await target.leaders()).get(tablet_id)
        if leader is None:
            continue
        to = pick(rng, [server for server in target.servers if server is not leader])
        with suppress(StelaeError):
            await target.connection.transfer_leadership(leader.node_id, tablet_id, to.node_id)
            told.append(f"{leader.name} to {to.name}")
    return f"leadership of tablets from {', '.join(told)}" if told else "no leadership was transferred"


KINDS: Final[Mapping[str, ChaosFaultKind]] = MappingProxyType(
    {
        "kill-one": ChaosFaultKind("SIGKILL of a tablet server", kill_one),
        "kill-long": ChaosFaultKind(
            "SIGKILL of a tablet server until the masters begin to replace its replicas", kill_long, needs_masters=True
        ),
        "kill-majority": ChaosFaultKind("SIGKILL of a majority of the tablet servers", kill_majority),
        "kill-all": ChaosFaultKind("SIGKILL of all tablet servers", kill_all),
        "kill-leader": ChaosFaultKind("SIGKILL of the leader of a tablet", kill_leader),
        "kill-master": ChaosFaultKind("SIGKILL of the leading master", kill_master, needs_masters=True),
        "lose-disk": ChaosFaultKind("a tablet server loses its disk", lose_disk, needs_masters=True, destroys=True),
        "stop-one": ChaosFaultKind("SIGSTOP of a node, later SIGCONT", stop_one),
        "stop-leader": ChaosFaultKind("SIGSTOP of the leader of a tablet, later SIGCONT", stop_leader),
        "isolate-one": ChaosFaultKind("a node is cut off from all other nodes", isolate_one, RulesKind.NETWORK),
        "isolate-leader": ChaosFaultKind("the leader of a tablet is cut off", isolate_leader, RulesKind.NETWORK),
        "cut-one-way": ChaosFaultKind(
            "a node sends but does not receive, or the reverse", cut_one_way, RulesKind.NETWORK
        ),
        "bad-network": ChaosFaultKind(
            "messages are lost, repeated, reordered and delayed", bad_network, RulesKind.NETWORK
        ),
        "slow-links": ChaosFaultKind("the messages of a node are slow", slow_links, RulesKind.NETWORK),
        "slow-disk": ChaosFaultKind("the writes and syncs of a node are slow", slow_disk, RulesKind.DISK),
        "skew-clocks": ChaosFaultKind("the wall clocks of all nodes are wrong", skew_clocks, RulesKind.CLOCK),
        "transfer": ChaosFaultKind("leadership of tablets is transferred", transfer),
        "change-members": ChaosFaultKind("a replica is replaced, or loses its vote for a moment", change_members),
    }
)
"""All kinds of faults by name."""


def chosen_kinds(text: str) -> list[str]:
    """Return the kinds in a comma-separated list; empty: all.

    Raises:
        UnknownFault: a kind does not exist.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in KINDS]
    if unknown or (text.strip() and not names):
        raise UnknownFault(f"no fault is called {', '.join(unknown) or text!r}; known: {', '.join(KINDS)}")
    return [kind for kind in KINDS if not names or kind in names]
