"""Drives the reports of a tablet server: heartbeats to every master, and at once what has changed."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from stelae.client.messages import decode, encode
from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.host.replica import Replica, ReplicaState
from stelae.server.master.heartbeats import HEARTBEAT, DataState, Heartbeat, HeartbeatReply, ReplicaStatus
from stelae.server.tserver.reporting import Reporter, ServerFacts
from stelae.spi.consensus import Role, Status
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId, TabletId

log = logging.getLogger(__name__)

INTERVAL_US = 500_000
"""How often a server reports though nothing has changed."""

LOOK_US = 50_000
"""How often it looks whether something has."""

CALL_MS = 2_000
"""Deadline of one heartbeat. The next one does not wait for it."""


class MasterReports:
    """Heartbeats of one node to its masters. A ``Service`` (``stelae.spi.hooks``); without masters it does nothing."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._timer: Timer | None = None
        self._due_us = 0
        self._seen: dict[TabletId, ReplicaStatus] = {}
        self._known: dict[TabletId, tuple[Status, int, str]] = {}

    def start(self) -> None:
        """Begin to report; masters are peers from here on."""
        node = self._node
        masters = node.config.masters
        if not masters:
            return
        for master in masters:
            node.messenger.add_peer(master.node_id, master.address)
        names = [master.node_id for master in masters]
        self._reporter = Reporter(node.node_id, node.messenger.identity.incarnation_id, names)
        self._wait()

    def stop(self) -> None:
        """Report no more: masters notice the silence."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + LOOK_US, self._look)

    def _look(self) -> None:
        self._wait()
        node, now_us = self._node, self._node.turns.now_us()
        found = {tablet_id: self._status_of(replica) for tablet_id, replica in node.replicas.items()}
        for tablet_id in node.failed_tablets:
            found[tablet_id] = ReplicaStatus(tablet_id=tablet_id, data_state=DataState.FAILED)
        gone = {
            tablet_id: ReplicaStatus(tablet_id=tablet_id, data_state=DataState.DELETED)
            for tablet_id in self._seen
            if tablet_id not in found
        }
        if found != self._seen:
            self._due_us = now_us
            for status in (*found.values(), *gone.values()):
                self._reporter.replica_changed(status)
            self._seen = found
        if now_us >= self._due_us:
            self._due_us = now_us + INTERVAL_US
            for master, heartbeat in self._reporter.heartbeats(self._facts()):
                self._send(master, heartbeat)

    def _status_of(self, replica: Replica) -> ReplicaStatus:
        """How a replica stands; what it said before while nothing of it has changed, as of most tablets at any time."""
        now = (replica.status, replica.applier.store.schema.version, replica.failure)
        before = self._known.get(replica.tablet_id)
        if before is not None and before[0] is now[0] and before[1:] == now[1:] and replica.tablet_id in self._seen:
            return self._seen[replica.tablet_id]
        self._known[replica.tablet_id] = now
        return _status_of(replica)

    def _facts(self) -> ServerFacts:
        node = self._node
        return ServerFacts(address=node.address, free_bytes=node.files.space_left(node.layout.root))

    def _send(self, master: NodeId, heartbeat: Heartbeat) -> None:
        call = self._node.messenger.call(master, HEARTBEAT, [encode(heartbeat)], deadline_ms=CALL_MS)
        call.add_done_callback(partial(self._answered, master))

    def _answered(self, master: NodeId, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        try:
            reply = decode(answer.result().body[0], HeartbeatReply)
        except (StelaeError, IndexError) as error:
            log.warning("heartbeat answered wrongly master=%s: %s", master, error)
            return
        if self._reporter.replied(master, reply):
            self._due_us = 0


def _status_of(replica: Replica) -> ReplicaStatus:
    """How a replica stands, as masters see it."""
    status = replica.status
    return ReplicaStatus(
        tablet_id=replica.tablet_id,
        data_state=DataState.FAILED if replica.state is ReplicaState.FAILED else DataState.READY,
        # A leader that has yet to commit in its term serves nobody: it is reported as one once it does.
        role=Role.FOLLOWER if status.role is Role.LEADER and not status.serving else status.role,
        term=status.term,
        config=status.committed_config,
        schema_version=replica.applier.store.schema.version,
        change_pending=status.config.op_id != status.committed_config.op_id,
    )
