"""Compares a tablet server's list of masters with that of the masters, once with each of them after a start.

Only a master whose cluster is on record counts: when a cluster begins, all of its masters have compared their lists. A
server whose list differs ends with both sides: one that does not know every master reports to nobody while another one
leads. Whoever answers first after the start decides; a running server is not ended by what it hears later."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from stelae.host.node import Node
from stelae.protocol.cluster_bootstrap_messages import FOUNDING, BootstrapAnswer, BootstrapRequest, BootstrapStage
from stelae.protocol.codec import decode, encode
from stelae.server.master.core.listed_masters import check_listed
from stelae.spi.errors import ConfigError, StelaeError
from stelae.spi.ids import NodeId

log = logging.getLogger(__name__)

CALL_MS = 2_000


class MasterList:
    """The list of one tablet server, on its event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._asked: set[NodeId] = set()
        self._agreed = False

    def heard(self, master: NodeId) -> None:
        """A master has answered: ask it for its list, unless it is asked or was compared."""
        if master not in self._asked:
            self._asked.add(master)
            call = self._node.messenger.call(master, FOUNDING, [encode(BootstrapRequest())], deadline_ms=CALL_MS)
            call.add_done_callback(partial(self._answered, master))

    def _answered(self, master: NodeId, call: asyncio.Future[Any]) -> None:
        if call.cancelled() or call.exception() is not None:
            self._asked.discard(master)
            return
        try:
            answer = decode(call.result().body[0], BootstrapAnswer)
        except (StelaeError, IndexError) as error:
            log.warning("list of masters answered wrongly master=%s: %s", master, error)
            return
        if answer.stage is not BootstrapStage.BEGUN:
            self._asked.discard(master)
            return
        self._compare(master, answer)

    def _compare(self, master: NodeId, answer: BootstrapAnswer) -> None:
        addresses = dict(answer.masters)
        try:
            masters = {node_id: addresses.get(node_id, "?") for node_id in answer.members}
            check_listed(self._node.config.masters, masters, f"as master {addresses.get(master, master)} says,")
            self._agreed = True
        except ConfigError as error:
            if self._agreed:
                log.warning("lists of masters differ: %s", error)
            else:
                self._node.end_because(error)
