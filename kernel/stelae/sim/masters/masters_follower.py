"""The masters as one simulated client knows them. It looks for others as production's client does.

Production's rule chooses among the answers (``masters_lookup.newest_view``): the newest config wins. In runs in which
masters do not change, no client looks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from stelae.client.masters_lookup import newest_view
from stelae.protocol.codec import decode, encode
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView
from stelae.sim.draw import chance, pick
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.messenger import CallAnswer
from stelae.sim.masters.network import SimEndpoint
from stelae.sim.masters.tserver import SimServer
from stelae.sim.masters.world import FOREIGN, MastersWorld, master_node
from stelae.spi.ids import NodeId

SERVERS_ASKED = 2
KEPT_ADDRESS = 0.3
"""The share of the reads that go to any master that ever ran, whose address somebody has kept."""


class MastersFollower:
    """The masters that one client, or the operator, knows.

    Args:
        everyone: all masters that ever ran, the present and the removed ones.
        present: the masters at first.

    Attributes:
        masters: those that it knows.
        view: the newest view that it was given; ``None`` before the first.
    """

    def __init__(
        self,
        world: MastersWorld,
        endpoint: SimEndpoint,
        node_id: NodeId,
        everyone: Mapping[NodeId, SimMaster],
        present: Sequence[SimMaster],
    ) -> None:
        self._world = world
        self._endpoint = endpoint
        self._node_id = node_id
        self._everyone = everyone
        self.masters = list(present)
        self.view: MastersView | None = None
        self._cluster_created_us = 0
        self.on_changed: Callable[[], None] = lambda: None
        self._rng: random.Random | None = None
        self._servers: Sequence[SimServer] = ()

    def follow(self, rng: random.Random, servers: Sequence[SimServer]) -> None:
        """Look for other masters from now on, also through these servers."""
        self._rng, self._servers = rng, servers

    def to_read(self, rng: random.Random) -> SimMaster:
        """Return the master for a read that any master may answer."""
        if self._rng is not None and chance(self._rng, KEPT_ADDRESS):
            return pick(self._rng, [master for master in self._everyone.values() if master.epoch])
        return pick(rng, self.masters)

    def look(self) -> None:
        """Ask all known masters, and some servers, which masters there are."""
        if self._rng is None:
            return
        network = self._world.network
        for master in self.masters:
            self._ask_master(master)
        for server in (pick(self._rng, self._servers) for _ in range(SERVERS_ASKED if self._servers else 0)):
            network.send(self._endpoint.name, server.endpoint, MASTERS, lambda server=server: self._answer_of(server))  # type: ignore[misc]

    def _ask_master(self, master: SimMaster) -> None:
        network = self._world.network

        def answer(result: CallAnswer) -> None:
            network.send(master.endpoint.name, self._endpoint, "masters", lambda: self._answered(result))

        body = encode(MastersRequest())
        network.send(
            self._endpoint.name,
            master.endpoint,
            MASTERS,
            lambda: master.receive_request(self._node_id, MASTERS, body, answer),
        )

    def _answer_of(self, server: SimServer) -> None:
        view = server.masters_view()
        self._world.network.send(server.endpoint.name, self._endpoint, "masters", lambda: self._heard(view))

    def _answered(self, answer: CallAnswer) -> None:
        if isinstance(answer, bytes):
            self._heard(decode(answer, MastersView))

    def _heard(self, view: MastersView) -> None:
        """Take the newest of the view so far and this one."""
        known = self.view
        newest = newest_view([view] if known is None else [view, known], self._cluster_created_us)
        if newest is None or newest.config is None or view.config is None:
            return
        if view.config.member(master_node(FOREIGN)) is not None:
            self._world.coverage.hit("masters.client_told_of_another_cluster")
            if newest is view:
                self._world.report("one_cluster", f"{self._endpoint.name} follows masters of another cluster")
                return
        if view.hearsay and newest is not view:
            return
        before = None if known is None else known.config
        self.view = newest
        self._cluster_created_us = newest.cluster_created_us or self._cluster_created_us
        self._world.on_told(self._endpoint.name, view.config, before, newest.config)
        if before is None or before.op_id != newest.config.op_id:
            self.masters = [self._everyone[node_id] for node_id, _ in newest.members]
            self.on_changed()
