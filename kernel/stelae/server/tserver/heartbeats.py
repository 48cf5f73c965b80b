"""Drives the reports of a tablet server: heartbeats to every master, and at once what has changed."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import Any

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_heartbeats import HEARTBEAT, Heartbeat, HeartbeatReply
from stelae.server.tserver.load import LoadMeter
from stelae.server.tserver.master_list import MasterList
from stelae.server.tserver.node_info import NodeInfoService
from stelae.server.tserver.replica_changes import ReplicaChanges
from stelae.server.tserver.replica_stats import ReplicaStats
from stelae.server.tserver.reporting import Reporter, ServerFacts
from stelae.server.tserver.settings import TabletServerSettings
from stelae.spi.errors import StelaeError
from stelae.spi.ids import NodeId

log = logging.getLogger(__name__)

INTERVAL_US = 500_000
"""How often a server reports though nothing has changed."""

LOOK_US = 50_000
"""How often it looks whether something has."""

CALL_MS = 2_000
"""Deadline of one heartbeat. The next one does not wait for it."""


_NUMBERS = re.compile(r"\d+")

_OTHER_CLUSTER = re.compile(r"of cluster '.*'; this is '")
"""What ``WrongCluster`` says: it comes as the reason why there is no connection."""

WRONG_CLUSTER_STEP = "; correct [cluster] id, or the addresses in [masters], of this node's file"
"""What there is to do for a server that masters of another cluster refuse."""


class MasterReports:
    """Heartbeats of one node to its masters, if it has any, and answers about itself to whoever asks.

    A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node, load: LoadMeter) -> None:
        self._node = node
        self._load = load
        self._timer: Timer | None = None
        self._due_us = 0
        self._unheard: dict[NodeId, str] = {}
        self._settings = node.config.extra.get("tserver") or TabletServerSettings()
        self._list = MasterList(node)
        self._watch = ReplicaStats(node)
        self._changes = ReplicaChanges(node, self._watch)
        self._about = NodeInfoService(node, self._watch, self._settings.location)

    def start(self) -> None:
        """Begin to report; masters are peers from here on."""
        node = self._node
        self._watch.start()
        self._about.start()
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
        self._watch.stop()
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + LOOK_US, self._look)

    def _look(self) -> None:
        self._wait()
        now_us = self._node.turns.now_us()
        for status in self._changes.take():
            self._due_us = now_us
            self._reporter.replica_changed(status)
        if now_us >= self._due_us:
            self._due_us = now_us + INTERVAL_US
            for master, heartbeat in self._reporter.heartbeats(self._facts()):
                self._send(master, heartbeat)

    def _facts(self) -> ServerFacts:
        node = self._node
        load = round(self._load.per_s(node.turns.now_us()), 1)
        return ServerFacts(
            address=node.address, location=self._settings.location, free_bytes=node.free_bytes(), load_ops_per_s=load
        )

    def _send(self, master: NodeId, heartbeat: Heartbeat) -> None:
        self._node.metrics.count("heartbeats_sent")
        if heartbeat.report is not None:
            self._node.metrics.count("reports_sent_full" if heartbeat.report.full else "reports_sent_incremental")
        call = self._node.messenger.call(master, HEARTBEAT, [encode(heartbeat)], deadline_ms=CALL_MS)
        call.add_done_callback(partial(self._answered, master))

    def _answered(self, master: NodeId, answer: asyncio.Future[Any]) -> None:
        if answer.cancelled() or (failure := answer.exception()) is not None:
            self._node.metrics.count("heartbeats_failed")
            if not answer.cancelled():
                self._not_heard(master, failure)
            return
        self._unheard.pop(master, None)
        self._list.heard(master)
        try:
            reply = decode(answer.result().body[0], HeartbeatReply)
        except (StelaeError, IndexError) as error:
            self._node.metrics.count("heartbeats_failed")
            log.warning("heartbeat answered wrongly master=%s: %s", master, error)
            return
        if self._reporter.replied(master, reply):
            self._due_us = 0

    def _not_heard(self, master: NodeId, failure: BaseException | None) -> None:
        """Say why a master takes no reports: once, until it does or the reason is another."""
        reason = _NUMBERS.sub("#", str(failure))  # How far a clock is ahead, say, is another number each time.
        if self._unheard.get(master) != reason:
            self._unheard[master] = reason
            where = next((one.address for one in self._node.config.masters if one.node_id == master), master)
            step = WRONG_CLUSTER_STEP if _OTHER_CLUSTER.search(str(failure)) else ""
            log.warning("heartbeat not taken master=%s: %s%s", where, failure, step)
