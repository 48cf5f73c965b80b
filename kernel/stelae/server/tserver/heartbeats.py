"""Sends the heartbeats of a tablet server to every master: at an interval, and at once when a replica has changed."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import Any

import msgspec

from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_heartbeats import HEARTBEAT, Heartbeat, HeartbeatReply
from stelae.server.tserver.copy_target import CopyTargetService
from stelae.server.tserver.load_meter import LoadMeter
from stelae.server.tserver.master_list import MasterList
from stelae.server.tserver.node_info import NodeInfoService
from stelae.server.tserver.replica_changes import ReplicaChanges
from stelae.server.tserver.replica_stats import ReplicaStats
from stelae.server.tserver.reporting import Reporter, ServerFacts
from stelae.server.tserver.settings import TabletServerSettings
from stelae.spi.errors import StelaeError, TooLarge
from stelae.spi.ids import NodeId

log = logging.getLogger(__name__)

INTERVAL_US = 500_000
"""Longest time between two heartbeats to a master, when no replica has changed."""

LOOK_US = 50_000
"""The shortest time between two checks whether a replica has changed."""

LOOK_US_OF_REPLICA = 100
"""With more replicas the time is longer, by this for each of them: a check takes a microsecond for each replica."""

CALL_MS = 2_000
"""Deadline of one heartbeat. The next heartbeat does not wait for the answer."""

FULL_REPORT_MS = 30_000
"""Deadline of a heartbeat with a full report, and the pause after one that cannot be sent. A new leader gets the full
reports of all servers at once, and may need longer for them than heartbeats are apart."""

_NUMBERS = re.compile(r"\d+")

_OTHER_CLUSTER = re.compile(r"of cluster '.*'; this is '")
"""Matches the text of ``WrongCluster``, which arrives as the reason why there is no connection."""

WRONG_CLUSTER_STEP = "; correct [cluster] id, or the addresses in [masters], of this node's file"
"""The next step for a server that is refused by masters of another cluster."""


TOO_LARGE_STEP = "raise [wire] frame_bytes_max on all nodes, or have fewer replicas on this node"
"""The next step for a server whose report is too large. The masters hear that it lives, and not what it has."""


class HeartbeatSender:
    """Sends the heartbeats of one node to its masters, if it has any, and serves requests for the node's own state.

    A ``Service`` (``stelae.spi.hooks``).

    Args:
        load: the meter whose reading the heartbeats carry.
        copies: the copies to this node, which are reported as well.
    """

    def __init__(self, node: Node, load: LoadMeter, copies: CopyTargetService) -> None:
        self._node = node
        self._load = load
        self._timer: Timer | None = None
        self._due_us = 0
        self._full_due_us: dict[NodeId, int] = {}  #: Until when a master gets no other full report.
        self._too_large = ""  #: Why a report could not be sent, as last logged.
        self._failures: dict[NodeId, str] = {}  #: Masters whose last heartbeat failed, with the reason in the log.
        self._settings = node.config.extra.get("tserver") or TabletServerSettings()
        self._list = MasterList(node, self._masters_changed)
        self._reporter: Reporter | None = None
        self._stats = ReplicaStats(node)
        self._changes = ReplicaChanges(
            node, self._stats, lambda: copies.running, lambda: copies.waiting, copies.lost_tablets
        )
        self._node_info = NodeInfoService(node, self._stats, self._settings.location, lambda: self._list.addresses)

    def start(self) -> None:
        """Start the heartbeats, to the masters that this node knows."""
        node = self._node
        self._stats.start()
        self._node_info.start()
        if not node.config.masters:
            return
        self._reporter = Reporter(node.node_id, node.messenger.identity.incarnation_id, ())
        self._list.start()
        self._wait(self._reporter)

    def stop(self) -> None:
        """Stop the heartbeats. Masters notice that they are missing."""
        self._stats.stop()
        if self._timer is not None:
            self._timer.cancel()

    def _masters_changed(self) -> None:
        """Send heartbeats to the present masters, at once to a new one."""
        if self._reporter is not None:
            self._reporter.masters_changed(self._list.addresses, self._list.told)
            self._due_us = 0

    def _wait(self, reporter: Reporter) -> None:
        turns = self._node.turns
        pause_us = min(INTERVAL_US, max(LOOK_US, LOOK_US_OF_REPLICA * len(self._node.replicas)))
        self._timer = turns.call_at(turns.now_us() + pause_us, lambda: self._look(reporter))

    def _look(self, reporter: Reporter) -> None:
        self._wait(reporter)
        self._list.look()
        now_us = self._node.turns.now_us()
        for status in self._changes.take():
            self._due_us = now_us
            reporter.replica_changed(status)
        if now_us >= self._due_us:
            self._due_us = now_us + INTERVAL_US
            for master, heartbeat in reporter.heartbeats(self._facts(), now_us):
                self._send(reporter, master, heartbeat)

    def _facts(self) -> ServerFacts:
        node = self._node
        load = round(self._load.per_s(node.turns.now_us()), 1)
        return ServerFacts(
            address=node.address, location=self._settings.location, free_bytes=node.free_bytes(), load_ops_per_s=load
        )

    def _send(self, reporter: Reporter, master: NodeId, heartbeat: Heartbeat) -> None:
        """Send a heartbeat. A full report is left out while another one to the same master is on its way."""
        now_us, report = self._node.turns.now_us(), heartbeat.report
        full = report is not None and report.full
        if full and now_us < self._full_due_us.get(master, 0):
            full, heartbeat = False, msgspec.structs.replace(heartbeat, report=None)
        if full:
            self._full_due_us[master] = now_us + FULL_REPORT_MS * 1000
        call = self._call(master, heartbeat, FULL_REPORT_MS if full else CALL_MS)
        if call is None:  # The pause after a full report goes on, so it is not encoded in vain with each look.
            full, heartbeat = False, msgspec.structs.replace(heartbeat, report=None)
            call = self._call(master, heartbeat, CALL_MS)
        if call is not None:
            self._count(heartbeat)
            where = self._list.addresses.get(master, master)  # A link may be closed before the answer comes.
            call.add_done_callback(partial(self._answered, reporter, master, where, full))

    def _call(self, master: NodeId, heartbeat: Heartbeat, deadline_ms: int) -> asyncio.Future[Any] | None:
        """Send a heartbeat, or return ``None`` if it does not fit one message. The reason is logged once."""
        try:
            return self._node.messenger.call(master, HEARTBEAT, [encode(heartbeat)], deadline_ms=deadline_ms)
        except TooLarge as error:
            if (reason := _NUMBERS.sub("#", str(error))) != self._too_large:
                self._too_large = reason
                where = self._list.addresses.get(master, master)
                log.warning("report does not fit one message master=%s: %s; %s", where, error, TOO_LARGE_STEP)
            return None

    def _count(self, heartbeat: Heartbeat) -> None:
        self._node.metrics.count("heartbeats_sent")
        if heartbeat.report is not None:
            self._node.metrics.count("reports_sent_full" if heartbeat.report.full else "reports_sent_incremental")

    def _answered(
        self, reporter: Reporter, master: NodeId, where: str, full: bool, answer: asyncio.Future[Any]
    ) -> None:
        if full:
            self._full_due_us.pop(master, None)
        if answer.cancelled() or (failure := answer.exception()) is not None:
            self._node.metrics.count("heartbeats_failed")
            if not answer.cancelled():
                self._log_failure(master, where, failure)
            return
        self._failures.pop(master, None)
        try:
            reply = decode(answer.result().body[0], HeartbeatReply)
        except (StelaeError, IndexError) as error:
            self._node.metrics.count("heartbeats_failed")
            log.warning("heartbeat reply is not readable master=%s: %s", master, error)
            return
        self._list.answered(master, reply)
        if reporter.replied(master, reply) and master not in self._full_due_us:
            self._due_us = 0

    def _log_failure(self, master: NodeId, where: str, failure: BaseException | None) -> None:
        """Log why a heartbeat failed. The same reason is logged once until a heartbeat succeeds."""
        reason = _NUMBERS.sub("#", str(failure))  # A number may differ each time, as the milliseconds of a clock error.
        if self._failures.get(master) != reason:
            self._failures[master] = reason
            step = WRONG_CLUSTER_STEP if _OTHER_CLUSTER.search(str(failure)) else ""
            log.warning("heartbeat failed master=%s: %s%s", where, failure, step)
