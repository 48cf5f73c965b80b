"""Compares a tablet server's list of masters with the masters' own, once with each master after a start.

The comparison needs a master that has recorded its cluster, because the masters of a new cluster first compare their
own lists. A server whose list differs stops with an error that shows both lists: if it lacked a master, it would
report to no leader whenever that master leads. Only the first master that answers after the start can stop the server.
A difference that is found later is logged."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from stelae.host.node import Node
from stelae.protocol.cluster_bootstrap_messages import BOOTSTRAP, BootstrapAnswer, BootstrapRequest, BootstrapStage
from stelae.protocol.codec import decode, encode
from stelae.server.master.core.listed_masters import check_listed
from stelae.spi.errors import ConfigError, StelaeError
from stelae.spi.ids import NodeId

log = logging.getLogger(__name__)

CALL_MS = 2_000
"""Deadline of the request for a master's list."""


class MasterList:
    """Compares the list of one tablet server. Used on the node's event loop."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._asked: set[NodeId] = set()
        self._agreed = False

    def heard(self, master: NodeId) -> None:
        """Ask a master for its list after it has answered a heartbeat, unless that is done or under way."""
        if master not in self._asked:
            self._asked.add(master)
            call = self._node.messenger.call(master, BOOTSTRAP, [encode(BootstrapRequest())], deadline_ms=CALL_MS)
            call.add_done_callback(partial(self._answered, master))

    def _answered(self, master: NodeId, call: asyncio.Future[Any]) -> None:
        if call.cancelled() or call.exception() is not None:
            self._asked.discard(master)
            return
        try:
            answer = decode(call.result().body[0], BootstrapAnswer)
        except (StelaeError, IndexError) as error:
            log.warning("list of masters is not readable master=%s: %s", master, error)
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
