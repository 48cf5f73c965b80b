"""All masters of one run: those that found the cluster, those that an operator adds, and one of another cluster.

In most runs only the first exist. Whether masters change is drawn from a stream of its own, so that the other runs are
what they would be without."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from stelae.protocol.codec import encode
from stelae.protocol.masters_messages import CHANGE_MASTERS, ChangeMastersRequest
from stelae.sim.coverage import Coverage
from stelae.sim.draw import between, chance, pick, stream
from stelae.sim.masters.committed_log import CommittedLog
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.master_profile import copying, draw_master_profile, keeping_log
from stelae.sim.masters.messenger import Router
from stelae.sim.masters.operator import MastersOperator
from stelae.sim.masters.tserver import SimServer
from stelae.sim.masters.world import FOREIGN, Committed, MastersWorld, master_member
from stelae.spi.ids import NodeId
from stelae.spi.members import AddServer, Member

CHANGES_SHARE: Final = 0.3
"""The share of the runs in which masters change."""

FOREIGN_SHARE: Final = 0.5
"""Of these, the share with a master of another cluster."""

STRAYS_SHARE: Final = 0.5
"""Of the tablet servers of such a run, the share whose file may name that master by mistake."""

FOREIGN_US: Final = (400_000, 1_500_000)
"""Shortest and longest time between two changes of the other cluster."""

SINGLE_SHARE: Final = 0.25
"""Of these, the share in which a single master bootstraps the cluster."""


STRIKES_SHARE: Final = 0.4
"""Of these, the share in which masters crash while they make a change of masters."""


RETURNS_SHARE: Final = 0.5
"""Of these, the share in which the operator asks for masters that were replaced because their disks were lost."""


COPIES_SHARE: Final = 0.5
"""Of these, the share in which logs are collected early, so that new masters need copies of the catalog."""


class MastersOfRun:
    """The masters of one run.

    Attributes:
        listed: the masters that found the cluster, as each of their files lists them.
        masters: all masters of the cluster that ever ran, by node id.
        peers: the same, and that of the other cluster: every master that a message can reach.
        operator: changes the masters; ``None`` in runs in which they stay.
    """

    def __init__(self, world: MastersWorld, seed: int, count: int, router: Router) -> None:
        self._world = world
        self._seed = seed
        self._router = router
        self._observe: Callable[[SimMaster], None] = lambda master: None
        drawn = self.rng("begin")
        changes = chance(drawn, CHANGES_SHARE)
        profile = draw_master_profile(seed)
        if changes:
            profile = copying(profile) if chance(self.rng("copies"), COPIES_SHARE) else keeping_log(profile)
        self._profile = profile
        self._log = CommittedLog(world)
        has_foreign = changes and chance(drawn, FOREIGN_SHARE)
        count = 1 if changes and chance(drawn, SINGLE_SHARE) else count
        self.listed = [master_member(position) for position in range(count)]
        world.found(self.listed)
        self.masters: dict[NodeId, SimMaster] = {}
        self.peers: dict[NodeId, SimMaster] = {}
        for position in range(count):
            self._add(position, self.listed)
        self._foreign: SimMaster | None = None
        self._foreign_world = MastersWorld(world.scheduler, world.network, Coverage())
        if has_foreign:
            self._foreign = self._make_foreign()
        self.operator: MastersOperator | None = None
        if changes:
            power = self.rng("power")
            strikes = power if chance(power, STRIKES_SHARE) else None
            returning = self.rng("returns")
            returns = returning if chance(returning, RETURNS_SHARE) else None
            rng = self.rng("operator")
            self.operator = MastersOperator(world, rng, self.masters, self._new, self._foreign, strikes, returns)

    def rng(self, name: str) -> random.Random:
        """Return a random stream for changes of masters."""
        return stream(self._seed, f"masters/coming/{name}")

    def observe(self, observe: Callable[[SimMaster], None]) -> None:
        """Call ``observe`` with each master, also with those that come later."""
        self._observe = observe
        for master in self.masters.values():
            observe(master)

    def start(self) -> None:
        """Start the masters, and the operator."""
        for master in self.peers.values():
            master.start()
        if self.operator is not None:
            self.operator.start()
        if self._foreign is not None:
            self._change_foreign(self._foreign, self.rng("foreign"))

    def let_stray(self, server: SimServer) -> None:
        """Let some servers meet the master of the other cluster."""
        rng = self.rng(f"{server.endpoint.name} strays")
        if self._foreign is not None and chance(rng, STRAYS_SHARE):
            server.stray(rng, master_member(FOREIGN))

    def _change_foreign(self, foreign: SimMaster, rng: random.Random) -> None:
        """Start the other cluster's master again, and give it another address, so that its op ids get high."""
        if self._world.healed:
            return
        if foreign.leader_term is None:
            foreign.start()
        else:
            change = AddServer(node_id=foreign.node_id, address=f"10.2.0.1:{between(rng, 1024, 65535)}")
            body = encode(ChangeMastersRequest(change))
            foreign.receive_request(foreign.node_id, CHANGE_MASTERS, body, lambda _: foreign.crash())
        pause_us = between(rng, *FOREIGN_US)
        self._world.scheduler.after(pause_us, "foreign", lambda: self._change_foreign(foreign, rng))

    def stop(self) -> None:
        """Let the operator complete its goal, and choose no other."""
        if self.operator is not None:
            self.operator.stopping = True

    def present(self) -> list[SimMaster]:
        """Return the masters by the newest committed config."""
        members = self._world.masters_config.members
        return [self.masters[member.node_id] for member in members if member.node_id in self.masters]

    def count_change(self, entry: Committed) -> None:
        """Count a change of masters, and what was wrong meanwhile."""
        if entry.config is None or self.operator is None:
            return
        coverage = self._world.coverage
        coverage.hit("masters.config_committed")
        if self._world.network.cut:
            coverage.hit("masters.changed_while_cut")
        if any(not master.endpoint.up for master in self.present()):
            coverage.hit("masters.changed_while_down")
        if len(entry.config.voters()) == 1:
            coverage.hit("masters.changed_to_one")

    def unfinished(self, servers: Sequence[SimServer]) -> list[str]:
        """Return what is not done yet of the changes of masters."""
        if self.operator is None:
            return []
        found = [] if self.operator.idle else ["the operator has a goal"]
        newest = self._world.masters_config
        if len(self._world.configs) > 1:
            found += [f"{s.endpoint.name} has old masters" for s in servers if s.masters_view().config != newest]
        if servers_there := self._foreign_world.committed_catalog.servers:
            self._world.report("one_cluster", f"the other cluster counts {', '.join(sorted(servers_there))} as its own")
        if (violation := self._foreign_world.violation) is not None:
            self._world.report("one_cluster", f"the other cluster: {violation.invariant}: {violation.detail}")
        return found

    def _add(self, position: int, listed: Sequence[Member]) -> SimMaster:
        world, profile = self._world, self._profile
        master = SimMaster(world, self._log, position, self._seed, profile, [*listed], self.peers, self._router)
        self.masters[master.node_id] = self.peers[master.node_id] = master
        self._observe(master)
        return master

    def _new(self, position: int) -> SimMaster:
        """Make a new master. Its file lists the first masters, the present ones, or those of another cluster."""
        lists: list[Sequence[Member]] = [self.listed, self._world.masters_config.members]
        if self._foreign is not None:
            lists.append([master_member(FOREIGN)])
        return self._add(position, pick(self.rng(f"list {position}"), lists))

    def _make_foreign(self) -> SimMaster:
        """Make the only master of another cluster that has the same id by mistake."""
        world, listed = self._foreign_world, [master_member(FOREIGN)]
        log = CommittedLog(world)
        world.found(listed)
        master = SimMaster(world, log, FOREIGN, self._seed, self._profile, listed, self.peers, self._router)
        self.peers[master.node_id] = master
        return master
