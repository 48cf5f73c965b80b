"""Follows the masters of a tablet server: learns changes from their answers, and keeps links to them.

No change needs an edit of ``node.toml`` or a restart (ADR 80). The rules are in ``known_masters``. A server that is
lost asks the nodes to which it has links, one after the other: the other members of its tablets, and the masters that
it knows. A master that was removed answers a heartbeat by its log, and this question with all that it knows.

If all masters are lost, an operator who has rebuilt the catalog hands the server to the new ones. A server that is not
lost refuses that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from stelae.host.node import Node
from stelae.lifecycle.masters_file import StoredMasters, load_masters, save_masters
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_heartbeats import HeartbeatReply
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView, creation_text
from stelae.protocol.recovery_messages import FOLLOW_MASTERS, FollowMastersRequest
from stelae.server.frames import only_frame
from stelae.server.masters_answer import masters_in
from stelae.server.tserver.known_masters import KnownMasters
from stelae.spi.errors import RecoveryNotYet, RecoveryRefused, Unavailable
from stelae.spi.ids import NodeId
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
        self._others = 0  #: The creation of the other cluster that the log has told of.
        self._stored: StoredMasters | None = None
        self._tried: StoredMasters | None = None
        self._storing = False
        self._failure = ""  #: Why the config was not stored, as last logged.
        self._handing: list[Request] = []  #: Requests to follow other masters, which wait for the disk.
        self._ask_due_us = 0
        self._asked = 0  #: How many nodes were asked so far.

    def start(self) -> None:
        """Read the stored config, open links to the masters, and serve requests for the list. Blocks shortly."""
        node = self._node
        self._stored = self._tried = load_masters(node.files, node.layout)
        self._known = KnownMasters(node.config.masters, self._stored)
        node.messenger.serve(MASTERS, self._serve)
        node.messenger.serve(FOLLOW_MASTERS, self._hand_over)
        self._warn_of_difference()
        self._link()

    @property
    def addresses(self) -> Mapping[NodeId, str]:
        """The masters with their addresses."""
        return self._linked

    @property
    def told(self) -> StoredMasters | None:
        """The newest config that is stored, or could not be; ``None``: only the list in ``node.toml``.

        Heartbeats carry it. Masters remove a master once the servers know the others, also after a restart. A disk that
        fails does not delay that."""
        return self._tried

    def answered(self, master: NodeId, reply: HeartbeatReply) -> None:
        """Learn from the answer to a heartbeat."""
        self._leader = reply.leader or self._leader
        learned = self._learn(reply.masters, reply.cluster_created_us)
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
        if view is not None and self._learn(view.config, view.cluster_created_us):
            self._leader = view.leader or self._leader
            self._link()
            self._store()

    def _learn(self, config: TabletConfig | None, cluster_created_us: int) -> bool:
        if config is None:
            return False
        if self._known.are_others(cluster_created_us):
            self._warn_of_others(config, cluster_created_us)
        if not self._known.learn(config, cluster_created_us):
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
        node, masters = self._node, self._known.followed
        if masters is None or masters == self._stored or self._storing:
            return

        def stored(result: object) -> None:
            self._storing = False
            if isinstance(result, Exception):
                if self._failure != str(result):
                    log.warning("the list of masters is not stored, which only matters for a restart: %s", result)
                self._failure = str(result)
            else:
                self._stored, self._failure = masters, ""
            if self._tried != masters:
                self._tried = masters
                self._changed()
            self._answer_handing(result)
            if self._stored == masters:
                self._store()

        self._storing = True
        node.metadata_pool.run("masters", lambda: save_masters(node.files, node.layout, masters), stored)

    # -- masters of another creation -----------------------------------------------------------------

    def _hand_over(self, request: Request) -> None:
        """Follow the masters of a catalog that takes the place of a lost one. Answer once they are stored."""
        asked, known = decode(only_frame(request), FollowMastersRequest), self._known
        if (
            known.followed is None
            or not asked.config.members
            or known.cluster_created_us not in (asked.instead_of_us, asked.cluster_created_us)
        ):
            raise RecoveryRefused("this server does not belong to the lost catalog; run the command again")
        if known.are_others(asked.cluster_created_us):
            if not known.lost:
                masters = ", ".join(_named(known.followed.config))
                raise RecoveryNotYet(
                    f"the masters of this server lead, so they are not lost: {masters}; stop them first"
                )
            log.warning("handed to masters of another catalog: %s", ", ".join(_named(asked.config)))
            known.follow(StoredMasters(asked.cluster_created_us, asked.config))
            self._leader = None
            self._warn_of_difference()
            self._link()
        self._handing.append(request)
        self._store()
        self._answer_handing(None)

    def _answer_handing(self, result: object) -> None:
        """Answer the waiting requests if the masters that are followed are stored, or could not be."""
        if self._stored != self._known.followed and not isinstance(result, Exception):
            return
        waiting, self._handing = self._handing, []
        for request in waiting:
            if isinstance(result, Exception):
                request.refuse(Unavailable(f"the list of masters is not stored: {result}"))
            else:
                request.reply()

    def _warn_of_difference(self) -> None:
        found = self._known.difference_to_file()
        if found not in ("", self._warned):
            log.warning("%s", found)
        self._warned = found

    def _warn_of_others(self, config: TabletConfig, cluster_created_us: int) -> None:
        """Say once that a node has named masters of another cluster, and what to do."""
        if cluster_created_us == self._others:
            return
        self._others = cluster_created_us
        log.warning(
            "ignored masters of another cluster with the same [cluster] id, created at %s: %s; this server belongs to "
            "that which was created at %s; correct [masters] in the node.toml of this server",
            creation_text(cluster_created_us),
            ", ".join(_named(config)),
            creation_text(self._known.cluster_created_us),
        )

    def _serve(self, request: Request) -> None:
        decode(only_frame(request), MastersRequest)
        known = self._known
        view = MastersView(
            node_id=self._node.node_id,
            config=known.config,
            leader=self._leader,
            cluster_created_us=known.cluster_created_us,
        )
        request.reply([encode(view)])


def _named(config: TabletConfig) -> list[str]:
    return [f"{member.address}:{member.member_type}" for member in config.members]
