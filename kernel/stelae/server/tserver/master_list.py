"""Follows the masters of a tablet server: learns changes from their answers, and keeps links to them.

No change needs an edit of ``node.toml`` or a restart (ADR 80). The rules are in ``known_masters``. A server that is
lost asks the nodes to which it has links, one after the other: the other members of its tablets, and the masters that
it knows. A master that was removed answers a heartbeat by its log, and this question with all that it knows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from stelae.host.node import Node
from stelae.lifecycle.masters_file import load_masters, save_masters
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_heartbeats import HeartbeatReply
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView
from stelae.server.frames import only_frame
from stelae.server.masters_answer import masters_in
from stelae.server.tserver.known_masters import KnownMasters
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import TabletConfig
from stelae.wire.requests import Request

log = logging.getLogger(__name__)

ASK_US = 500_000
"""The pause between two questions for the masters, in microseconds."""

CALL_MS = 2_000
"""Deadline of one question, in milliseconds."""


class MasterList:
    """The masters of one tablet server. Used on the node's event loop.

    Args:
        changed: called after each change of ``addresses``.
    """

    def __init__(self, node: Node, changed: Callable[[], None]) -> None:
        self._node = node
        self._changed = changed
        self._linked: dict[NodeId, str] = {}
        self._leader: NodeId | None = None
        self._warned = ""
        self._stored: OpId | None = None
        self._tried: OpId | None = None
        self._storing = False
        self._failure = ""  #: Why the config was not stored, as last logged.
        self._ask_due_us = 0
        self._asked = 0  #: How many nodes were asked so far.

    def start(self) -> None:
        """Read the stored config, open links to the masters, and serve requests for the list. Blocks shortly."""
        node = self._node
        self._known = KnownMasters(node.config.masters, load_masters(node.files, node.layout))
        self._stored = self._tried = self._known.config_id
        node.messenger.serve(MASTERS, self._serve)
        self._warn_of_difference()
        self._link()

    @property
    def addresses(self) -> Mapping[NodeId, str]:
        """The masters with their addresses."""
        return self._linked

    @property
    def config_id(self) -> OpId | None:
        """The op id of the newest config that is stored, or could not be; ``None``: only the list in ``node.toml``.

        Heartbeats carry it. Masters remove a master once the servers know the others, also after a restart. A disk that
        fails does not delay that."""
        return self._tried

    def answered(self, master: NodeId, reply: HeartbeatReply) -> None:
        """Learn from the answer to a heartbeat."""
        self._leader = reply.leader or self._leader
        learned = self._learn(reply.masters)
        if self._known.answered(master, reply.leader, self._node.turns.now_us()) or learned:
            self._link()
        self._store()

    def look(self) -> None:
        """Look for the masters if those of the config name no leader. Called at short intervals."""
        now_us, asked = self._node.turns.now_us(), self._known.asks
        if now_us < self._ask_due_us:
            return
        self._ask_due_us = now_us + ASK_US
        if self._known.waited(now_us):
            self._link()
        if self._known.asks:
            if not asked:
                log.warning("no master of config %s names a leader; look for other masters", self._known.config_id)
            self._ask()

    def _ask(self) -> None:
        """Ask the next of the nodes to which there are links."""
        messenger = self._node.messenger
        if known := sorted(messenger.peers):
            self._asked += 1
            node = known[self._asked % len(known)]
            call = messenger.call(node, MASTERS, [encode(MastersRequest())], deadline_ms=CALL_MS)
            call.add_done_callback(self._heard)

    def _heard(self, call: asyncio.Future[Any]) -> None:
        """Learn from the answer of another node."""
        view = masters_in(call)
        if view is not None and self._learn(view.config):
            self._leader = view.leader or self._leader
            self._link()
            self._store()

    def _learn(self, config: TabletConfig | None) -> bool:
        if config is None or not self._known.learn(config):
            return False
        log.info("masters changed config=%s masters=%s", config.op_id, ",".join(_named(config)))
        self._warn_of_difference()
        return True

    def _link(self) -> None:
        """Open links to new masters, move those to masters with a new address, and close those to removed ones."""
        messenger, addresses = self._node.messenger, dict(self._known.addresses)
        for master, address in addresses.items():
            if self._linked.get(master) != address:
                messenger.add_peer(master, address)
        for master in self._linked.keys() - addresses.keys():
            messenger.remove_peer(master)
        self._linked = addresses
        self._changed()

    def _store(self) -> None:
        """Store the known config, one after the other. One that cannot be stored is tried again with each answer."""
        node, config = self._node, self._known.config
        if config is None or config.op_id == self._stored or self._storing:
            return

        def stored(result: object) -> None:
            self._storing = False
            if isinstance(result, Exception):
                if self._failure != str(result):
                    log.warning("the list of masters is not stored, which only matters for a restart: %s", result)
                self._failure = str(result)
            else:
                self._stored, self._failure = config.op_id, ""
            if self._tried != config.op_id:
                self._tried = config.op_id
                self._changed()
            if self._stored == config.op_id:
                self._store()

        self._storing = True
        node.metadata_pool.run("masters", lambda: save_masters(node.files, node.layout, config), stored)

    def _warn_of_difference(self) -> None:
        found = self._known.difference_to_file()
        if found not in ("", self._warned):
            log.warning("%s", found)
        self._warned = found

    def _serve(self, request: Request) -> None:
        decode(only_frame(request), MastersRequest)
        view = MastersView(node_id=self._node.node_id, config=self._known.config, leader=self._leader)
        request.reply([encode(view)])


def _named(config: TabletConfig) -> list[str]:
    return [f"{member.address}:{member.member_type}" for member in config.members]
