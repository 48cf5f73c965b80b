"""Connects a client to the addresses that its user has given.

The client goes on shortly after the first node has answered. The others may be slow, or down. They are tried again when
the nodes that have answered cannot serve. All that answer must be of one cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.one_cluster import check_one_cluster, of_another_cluster
from stelae.spi.errors import Unavailable
from stelae.spi.ids import ClusterId, NodeId
from stelae.wire.messenger import Messenger
from stelae.wire.refusals import WrongCluster

AFTER_FIRST_S = 0.2
"""How long other nodes are waited for once one has answered."""

AGAIN_MS = 2_000
"""How long an address is tried again, in milliseconds."""

ANY_CLUSTER = ClusterId("")
"""The client takes the id of the first node that answers."""


class Greeting:
    """The given addresses, and the nodes that have answered there."""

    def __init__(self, messenger: Messenger, addresses: Sequence[str]) -> None:
        self._messenger = messenger
        self._addresses = tuple(dict.fromkeys(addresses))
        self._unheard: set[str] = set()  # Those that did not answer and are not being tried.
        self._admissions: set[asyncio.Task[None]] = set()
        self.nodes: list[NodeId] = []
        """The nodes that have answered."""
        self._places: dict[NodeId, str] = {}
        self.on_mixed: Callable[[WrongCluster], None] = lambda error: None
        """Called when an address answers late, as a node of another cluster than those before."""

    async def first(self, timeout_s: float) -> None:
        """Connect to all addresses, and wait until shortly after the first answer.

        Raises:
            Unavailable: no node answered in time.
            WrongCluster: two addresses are of different clusters.
        """
        hellos = {a: self._messenger.connect(a, deadline_ms=int(timeout_s * 1000)) for a in self._addresses}
        try:
            done, waiting = await asyncio.wait(hellos.values(), return_when=asyncio.FIRST_COMPLETED)
            while waiting and not any(hello.exception() is None for hello in done):
                more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                done |= more
            if waiting:
                more, waiting = await asyncio.wait(waiting, timeout=AFTER_FIRST_S)
                done |= more
        finally:
            for (
                hello
            ) in hellos.values():  # Also of a caller that is cancelled: nothing else would ask for their errors.
                hello.cancel()
        heard = {a: hello.result() for a, hello in hellos.items() if hello in done and hello.exception() is None}
        self._unheard = set(hellos) - set(heard)
        self._places = {node: address for address, node in heard.items()}
        self.nodes = list(self._places)
        for address in heard and [a for a, hello in hellos.items() if hello in done]:
            if mixed := of_another_cluster(next(iter(heard)), address, hellos[address].exception()):
                raise mixed
        await check_one_cluster(self._messenger, self._places)
        if not self.nodes:
            refusals = {str(error) for hello in done if not isinstance(error := hello.exception(), Unavailable)}
            why = "; ".join(sorted(refusals)) or "check that the nodes run, and that these are their addresses"
            raise Unavailable(f"no node answered in {timeout_s:g} s at {', '.join(self._addresses)}: {why}")

    def again(self, tracker: LeaderTracker) -> None:
        """Try the addresses again that have not answered. A node that answers now is asked by the tracker, too."""
        unheard, self._unheard = sorted(self._unheard), set()
        for address in unheard:
            hello = self._messenger.connect(address, deadline_ms=AGAIN_MS)
            hello.add_done_callback(partial(self._answered, address, tracker))

    def _answered(self, address: str, tracker: LeaderTracker, hello: asyncio.Future[NodeId]) -> None:
        if hello.cancelled() or (refusal := hello.exception()) is not None:
            self._unheard.add(address)
            if not hello.cancelled() and (error := of_another_cluster(self._places[self.nodes[0]], address, refusal)):
                self.on_mixed(error)
            return
        admission = asyncio.get_running_loop().create_task(self._admit(hello.result(), address, tracker))
        self._admissions.add(admission)
        admission.add_done_callback(self._admissions.discard)

    async def _admit(self, node: NodeId, address: str, tracker: LeaderTracker) -> None:
        """Use a node that has answered late, if it is of the same cluster."""
        try:
            await check_one_cluster(self._messenger, {**self._places, node: address})
        except WrongCluster as error:
            self.on_mixed(error)
            return
        if node not in self.nodes:
            self.nodes.append(node)
            self._places[node] = address
        tracker.learn(self.nodes)
