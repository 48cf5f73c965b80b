"""The heartbeats and reports that a master has received since it started. They are not durable and not in the catalog.

Every heartbeat refreshes liveness, also on followers. So a new leader knows at once which servers live (KUDU-1358).
Only the leader takes reports, and they belong to one leadership: a new leader asks each server for a full report,
whatever it knew before (KUDU-1374)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from operator import itemgetter

import msgspec

from stelae.protocol.master_heartbeats import CopyHold, Heartbeat, ReplicaStatus, ReportedDataState, ServerReport
from stelae.server.master.settings import MasterSettings
from stelae.spi.ids import IncarnationId, NodeId, OpId, TabletId


class Liveness(StrEnum):
    """The liveness of a server, as this master sees it."""

    LIVE = "LIVE"
    SILENT = "SILENT"  #: Not heard for a while, or not since this master started.
    DEAD = "DEAD"


class ReportedCopyProgress(msgspec.Struct):
    """The progress of the copy of a tablet to a server, over successive attempts."""

    most_bytes: int
    rose_us: int  #: When ``most_bytes`` was reported first.
    seen_us: int  #: When the copy was reported last.


class Server:
    """One server, by its heartbeats and reports. Callers only read the attributes."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.incarnation = IncarnationId("")
        self.sequence = -1
        self.heard_us = 0
        self.address = ""
        self.location = ""
        self.free_bytes = 0
        self.load_ops_per_s = 0.0
        self.masters: OpId | None = None  #: The config of the masters that it has stored; ``None``: its file.
        self.complete = False  #: Whether ``replicas`` has all replicas of the server.
        self.asked_us = 0  #: Since when it has been asked for a full report.
        self.version = 0
        self.replicas: dict[TabletId, ReplicaStatus] = {}
        self.copies: dict[TabletId, ReportedCopyProgress] = {}
        self.copied: dict[TabletId, int] = {}  #: When copies of its replicas were complete.
        self.held: dict[TabletId, int] = {}  #: Since when copies wait for a slot or are paused.


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The effects of a report."""

    wants_full: bool
    acknowledged: int
    changed: tuple[TabletId, ...] = ()


Holders = tuple[tuple[NodeId, ReplicaStatus], ...]
_NODE = itemgetter(0)


class Servers:
    """The servers that this master has heard.

    Args:
        started_us: when this master started, on the clock of all ``now_us`` here.
    """

    def __init__(self, settings: MasterSettings, started_us: int) -> None:
        self._settings = settings
        self._started_us = started_us
        self._servers: dict[NodeId, Server] = {}
        self._holders: dict[TabletId, Holders] = {}
        self._missing: dict[TabletId, set[NodeId]] = {}
        self._failed: dict[TabletId, dict[NodeId, int]] = {}  # When the last copy ended without a replica.

    def __iter__(self) -> Iterator[Server]:
        """Yield the servers in order of node ids."""
        return iter([self._servers[node_id] for node_id in sorted(self._servers)])

    def get(self, node_id: NodeId) -> Server | None:
        """Return a server, or ``None`` if it was not heard."""
        return self._servers.get(node_id)

    def heard(self, heartbeat: Heartbeat, now_us: int) -> bool:
        """Note that the sender of a heartbeat lives. Return false if a later heartbeat has arrived before.

        Incarnation ids of a node rise with each start. So a lower one is of a process that has ended."""
        server = self._servers.setdefault(heartbeat.node_id, Server(heartbeat.node_id))
        if heartbeat.incarnation < server.incarnation:
            return False
        if heartbeat.incarnation > server.incarnation:
            if server.complete or not server.incarnation:  # One that restarts again and again is not waited for.
                server.asked_us = now_us
            self._forget(server)
            server.incarnation, server.sequence = heartbeat.incarnation, -1
        server.heard_us = now_us
        if heartbeat.sequence <= server.sequence:
            return False
        server.sequence = heartbeat.sequence
        server.address, server.location = heartbeat.address, heartbeat.location
        server.free_bytes, server.load_ops_per_s = heartbeat.free_bytes, heartbeat.load_ops_per_s
        server.masters = heartbeat.masters
        return True

    def begin_leadership(self, now_us: int) -> None:
        """Ask each server for a full report from now on, also if it has sent one before."""
        for server in self._servers.values():
            self._forget(server)
            server.asked_us = now_us

    def take(self, node_id: NodeId, report: ServerReport | None) -> Taken:
        """Take the report of a heartbeat. Only the leader does, and only if no later heartbeat has arrived before."""
        server = self._servers[node_id]
        if report is None:
            return Taken(wants_full=not server.complete, acknowledged=server.version)
        if report.full:
            changed = dict.fromkeys((*server.replicas, *(status.tablet_id for status in report.replicas)))
            self._forget(server)
            for status in report.replicas:
                self._store(server, status)
            server.complete, server.version = True, report.upto
        elif server.complete and report.since <= server.version:
            changed = dict.fromkeys(status.tablet_id for status in report.replicas)
            for status in report.replicas:
                self._store(server, status)
            server.version = max(server.version, report.upto)
        else:
            return Taken(wants_full=True, acknowledged=server.version)
        return Taken(wants_full=False, acknowledged=server.version, changed=tuple(changed))

    def liveness(self, node_id: NodeId, now_us: int) -> Liveness:
        """Return the liveness of a server.

        For one that was never heard, silence counts from this master's start (``durability.md`` rule 28)."""
        server = self._servers.get(node_id)
        since_us = self._started_us if server is None else server.heard_us
        silent_ms = (now_us - since_us) // 1000
        if silent_ms > self._settings.server_dead_ms:
            return Liveness.DEAD
        if server is None or silent_ms > self._settings.server_silent_ms:
            return Liveness.SILENT
        return Liveness.LIVE

    def has_yet_to_report(self, node_id: NodeId, now_us: int) -> bool:
        """Return whether a server that is not dead may have replicas and copies of which this leader has not heard.

        Its full report is on its way, or was lost and comes again. One that lives and does not report for
        ``server_dead_ms`` is not waited for: its report may fit no message."""
        server = self._servers.get(node_id)
        if self.liveness(node_id, now_us) is Liveness.DEAD or (server is not None and server.complete):
            return False
        return server is None or now_us - server.asked_us <= self._settings.server_dead_ms * 1000

    def copy_advances(self, node_id: NodeId, tablet_id: TabletId, now_us: int) -> bool:
        """Return whether a replica is being copied to a server that lives, and got bytes not too long ago.

        A paused copy counts, because its server ends the pause within a day. A copy that waits for a slot counts
        while the copies in the slots get bytes. A copy that has just ended counts, too: the leader of the tablet
        needs a moment to hear the replica and to report it."""
        server = self._servers.get(node_id)
        if server is None or self.liveness(node_id, now_us) is Liveness.DEAD:
            return False
        status = server.replicas.get(tablet_id)
        if status is not None and status.copy_hold is CopyHold.WAITS:
            waits_since_us = server.held.get(tablet_id, now_us)
            if now_us - waits_since_us <= self._settings.copy_stalled_ms * 1000:
                return True
            return any(self._gets_bytes(server, other, now_us) for other in server.copies)
        copied_us = server.copied.get(tablet_id)
        if copied_us is not None and now_us - copied_us <= self._settings.server_dead_ms * 1000:
            return True
        return self._gets_bytes(server, tablet_id, now_us)

    def _gets_bytes(self, server: Server, tablet_id: TabletId, now_us: int) -> bool:
        status, copy = server.replicas.get(tablet_id), server.copies.get(tablet_id)
        if status is None or copy is None or status.data_state is not ReportedDataState.COPYING:
            return False
        if status.copy_hold is not CopyHold.NONE:
            return status.copy_hold is CopyHold.PAUSED
        return now_us - copy.rose_us <= self._settings.copy_stalled_ms * 1000

    def avoided(self, tablet_id: TabletId, now_us: int) -> tuple[NodeId, ...]:
        """Return the nodes on which a copy of a tablet has failed within ``copy_stalled_ms``, in order."""
        since_us = now_us - self._settings.copy_stalled_ms * 1000
        failed = self._failed.get(tablet_id)
        return () if failed is None else tuple(sorted(node for node, at_us in failed.items() if at_us > since_us))

    def live_count(self, now_us: int) -> int:
        """Return the number of LIVE servers."""
        return sum(self.liveness(node_id, now_us) is Liveness.LIVE for node_id in self._servers)

    def is_warm(self, now_us: int) -> bool:
        """Return whether this master has run long enough to have heard every live server."""
        return now_us - self._started_us > self._settings.server_silent_ms * 1000

    def with_older_masters(self, config_id: OpId, now_us: int) -> list[Server]:
        """Return the LIVE servers that know only an older config of the masters, in order of node ids."""
        return [
            server
            for server in self
            if (server.masters is None or server.masters < config_id)
            and self.liveness(server.node_id, now_us) is Liveness.LIVE
        ]

    def holding(self, tablet_id: TabletId) -> Holders:
        """Return the nodes that have reported a replica of a tablet, with the reports, in order of node ids.

        Tombstones are left out."""
        return self._holders.get(tablet_id, ())

    def missing(self, tablet_id: TabletId) -> frozenset[NodeId]:
        """Return the servers without a replica of a tablet that its leader reports as voters."""
        return frozenset(self._missing.get(tablet_id, ()))

    def held(self) -> list[TabletId]:
        """Return every tablet of which a server has reported a replica."""
        return list(self._holders)

    def _forget(self, server: Server) -> None:
        """Forget the reports of a server."""
        for tablet_id in list(server.replicas):
            self._remove(server, tablet_id)
        for tablet_id in list(self._missing):
            self._not_missing(server.node_id, tablet_id)
        server.copies.clear()
        server.copied.clear()
        server.held.clear()
        server.complete, server.version = False, 0

    def _store(self, server: Server, status: ReplicaStatus) -> None:
        """Note a replica. Tombstones are not kept: those of dropped tables would accumulate."""
        self._not_missing(server.node_id, status.tablet_id)
        if status.data_state is ReportedDataState.DELETED:
            self._note_failed(server, status.tablet_id)
            self._remove(server, status.tablet_id)
        elif status.data_state is ReportedDataState.MISSING:
            self._remove(server, status.tablet_id)
            self._missing.setdefault(status.tablet_id, set()).add(server.node_id)
        else:
            self._note_copy(server, status)
            server.replicas[status.tablet_id] = status
            others = self._without(server.node_id, status.tablet_id)
            self._holders[status.tablet_id] = tuple(sorted((*others, (server.node_id, status)), key=_NODE))

    def _note_copy(self, server: Server, status: ReplicaStatus) -> None:
        """Note the progress of a copy.

        A copy that fails and begins again makes no progress. The time in which it waits or is paused does not count."""
        now_us, copy = server.heard_us, server.copies.get(status.tablet_id)
        since_us = server.held.pop(status.tablet_id, None)
        if status.data_state is not ReportedDataState.COPYING:
            has_ended = server.copies.pop(status.tablet_id, None) is not None
            if status.data_state is not ReportedDataState.READY:
                server.copied.pop(status.tablet_id, None)
            elif has_ended:
                server.copied[status.tablet_id] = now_us
            return
        server.copied.pop(status.tablet_id, None)
        if status.copy_hold is not CopyHold.NONE:
            server.held[status.tablet_id] = now_us if since_us is None else since_us
        elif since_us is not None and copy is not None:
            copy.rose_us += now_us - since_us
        if status.copy_hold is CopyHold.WAITS:
            return
        if copy is None or now_us - copy.seen_us > self._settings.copy_stalled_ms * 1000:
            server.copies[status.tablet_id] = ReportedCopyProgress(status.copied_bytes, now_us, now_us)
            return
        copy.seen_us = now_us
        if status.copied_bytes > copy.most_bytes:
            copy.most_bytes, copy.rose_us = status.copied_bytes, now_us

    def _note_failed(self, server: Server, tablet_id: TabletId) -> None:
        """Note the failure of a copy that left no replica. Drop notes that are too old."""
        before, now_us = server.replicas.get(tablet_id), server.heard_us
        if before is None or before.data_state is not ReportedDataState.COPYING or before.copy_hold is CopyHold.WAITS:
            return
        since_us = now_us - self._settings.copy_stalled_ms * 1000
        for old in [one for one, failed in self._failed.items() if max(failed.values()) <= since_us]:
            del self._failed[old]
        self._failed.setdefault(tablet_id, {})[server.node_id] = now_us

    def _remove(self, server: Server, tablet_id: TabletId) -> None:
        server.held.pop(tablet_id, None)
        server.copied.pop(tablet_id, None)
        if server.replicas.pop(tablet_id, None) is not None:
            others = self._without(server.node_id, tablet_id)
            if others:
                self._holders[tablet_id] = others
            else:
                del self._holders[tablet_id]

    def _not_missing(self, node_id: NodeId, tablet_id: TabletId) -> None:
        lacking = self._missing.get(tablet_id, set())
        lacking.discard(node_id)
        if not lacking:
            self._missing.pop(tablet_id, None)

    def _without(self, node_id: NodeId, tablet_id: TabletId) -> Holders:
        return tuple(holder for holder in self.holding(tablet_id) if holder[0] != node_id)
