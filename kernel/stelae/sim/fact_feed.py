"""The fact feed: passes every observed fact to the invariants that judge it, then updates the world.

It keeps the first violation, and the run ends there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stelae.host.new_replica import NewReplica
from stelae.host.start_copy import StartCopy
from stelae.host.superblock import DataState, Superblock
from stelae.sim.coverage import Coverage
from stelae.sim.history import SCHEMA, ClientAnswer, ClientOperation
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.hosting.superblock_changes import (
    ON_DISK_AFTER,
    ON_DISK_WHILE,
    rows_are_copied,
    rows_reach_log,
    state_change,
)
from stelae.sim.invariants import INVARIANTS, AppliedRequest, FactListener, ObservedLookup, ObservedScan, Violation
from stelae.sim.log_model import LogModel
from stelae.sim.node_change import NodeChange
from stelae.sim.scheduler import Scheduler
from stelae.sim.stale_probe import StaleDelivery
from stelae.sim.table import RowCells
from stelae.sim.world import Needs, ObservedNode, World
from stelae.spi.consensus import HardState, LogView, Outbound, Ready, Role, Status
from stelae.spi.consensus_events import Event
from stelae.spi.copy import CopySession
from stelae.spi.ids import ZERO, LogId, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig, decode_config
from stelae.spi.schema import Schema
from stelae.spi.wal import Append, Durable, LogState, Outcome

Hook = Callable[..., None]


class FactFeed:
    """Receives the facts of one run and passes them to its invariants.

    The hooks of the invariants run before the view of the node is updated, except ``on_status``.

    Args:
        listeners: further listeners. Their hooks run after those of the invariants.

    Attributes:
        violation: the first violation, or ``None``.
        leader_elected: called with the position of a node that has won an election.
        leader_serves: called with the position of a node that begins to serve as leader.
        applied_ahead: called with the position of a node that has applied entries which its log does not hold durably.
    """

    def __init__(
        self, world: World, scheduler: Scheduler, coverage: Coverage, listeners: Sequence[FactListener] = ()
    ) -> None:
        self.world = world
        self.coverage = coverage
        self.violation: Violation | None = None
        self.leader_elected: Callable[[int], None] = _no_listener
        self.leader_serves: Callable[[int], None] = _no_listener
        self.applied_ahead: Callable[[int], None] = _no_listener
        self._scheduler = scheduler
        self._invariants = [make(world, self.report) for make in INVARIANTS]
        self._listeners = (*self._invariants, *listeners)
        self._on_restart = self._hooks("on_restart")
        self._on_step, self._on_ready = self._hooks("on_step"), self._hooks("on_ready")
        self._on_status = self._hooks("on_status")
        self._on_sent = self._hooks("on_sent")
        self._on_read = self._hooks("on_read")
        self._on_stale = self._hooks("on_stale")
        self._on_use_after_failed_sync = self._hooks("on_use_after_failed_sync")
        self._on_recovered = self._hooks("on_recovered")
        self._on_wal = self._hooks("on_wal")
        self._on_applied = self._hooks("on_applied")
        self._on_invoked = self._hooks("on_invoked")
        self._on_answered = self._hooks("on_answered")
        self._on_collect = self._hooks("on_collect")
        self._on_store_opened = self._hooks("on_store_opened")
        self._on_proposed = self._hooks("on_proposed")
        self._on_saved = self._hooks("on_saved")
        self._on_missing = self._hooks("on_missing")
        self._on_checksum = self._hooks("on_checksum")
        self._on_changed = self._hooks("on_changed")
        self._on_scanned, self._on_looked_up = self._hooks("on_scanned"), self._hooks("on_looked_up")
        self._on_schema = self._hooks("on_schema")
        self._on_altered = self._hooks("on_altered")
        self._on_config_saved = self._hooks("on_config_saved")
        self._on_node = self._hooks("on_node")
        self._on_hard_state_saved = self._hooks("on_hard_state_saved")

    def report(self, invariant: str, detail: str) -> None:
        """Record a violation, unless there is an earlier one."""
        if self.violation is None:
            at_us = self._scheduler.now_us
            self.violation = Violation(invariant=invariant, detail=detail, at_us=at_us)

    def restarted(
        self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int, committed_config: TabletConfig
    ) -> None:
        """A core was restored from what the node has read back from its disk."""
        for hook in self._on_restart:
            hook(node, hard_state, log, commit)
        node.restore(hard_state, log, committed_config)
        node.commit = commit

    def stepped(self, node: ObservedNode, events: Sequence[Event]) -> None:
        """A core, or the voter of a tombstone, is about to handle events."""
        for hook in self._on_step:
            hook(node, events)

    def ready(self, node: ObservedNode, ready: Ready) -> None:
        """A core returned effects."""
        self._count(ready)
        for hook in self._on_ready:
            hook(node, ready)
        node.apply_ready(ready, _configs(ready))
        if ready.commit is not None:
            self._committed(node, ready)

    def status(self, node: ObservedNode, status: Status) -> None:
        """A core returned its status, taken after its effects."""
        before, node.status = node.status, status
        if before is None or before.role is not status.role or before.term != status.term:
            origin = before.role if before is not None else "START"
            self.coverage.hit(f"role.{origin}>{status.role}")
            self._scheduler.note(f"{node.position} {status.role} {status.term}")
            if status.role is Role.LEADER:
                self.leader_elected(node.position)
        for hook in self._on_status:
            hook(node, before, status)
        if status.serving and status.role is Role.LEADER:
            served = before is not None and before.serving and before.role is Role.LEADER
            if not served:
                self.leader_serves(node.position)

    def sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """A replica sends a consensus message."""
        for hook in self._on_sent:
            hook(node, outbound, needs)
        node.expose(needs.hard_state)

    def read(self, node: ObservedNode, token: int) -> None:
        """A core was asked for a read index."""
        for hook in self._on_read:
            hook(node, token)

    def stale(self, node: ObservedNode, delivery: StaleDelivery) -> None:
        """A message of an older term was delivered to a copy of a core."""
        self.coverage.hit(f"stale.{delivery.what}")
        for hook in self._on_stale:
            hook(node, delivery)

    def used_after_failed_sync(self, node: ObservedNode, operation: str, path: str) -> None:
        """A process used a file after a sync of the file had failed."""
        for hook in self._on_use_after_failed_sync:
            hook(node, operation, path)

    def recovered(self, node: ObservedNode, log: LogId, state: LogState, found: list[Entry], model: LogModel) -> None:
        """A log engine has recovered a log."""
        for hook in self._on_recovered:
            hook(node, log, state, found, model)

    def wal(self, node: ObservedNode, append: Append, outcome: Outcome) -> None:
        """The replicated log of a node has reported the outcome of an append."""
        for hook in self._on_wal:
            hook(node, append, outcome)
        if isinstance(outcome, Durable):
            node.persisted(append.replace_from, append.entries)

    def applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """A replica has applied an entry."""
        entry = self.world.entries.get(op_id)
        self.world.agreed.applied(op_id, entry.timestamp if entry is not None else 0, requests)
        for hook in self._on_applied:
            hook(node, op_id, requests)
        if not self.world.holds(node, op_id):
            self.applied_ahead(node.position)

    def invoked(self, operation: ClientOperation) -> None:
        """A client has begun an operation."""
        self.world.agreed.invoked(operation)
        for hook in self._on_invoked:
            hook(operation)

    def answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """A client has received an answer."""
        for hook in self._on_answered:
            hook(operation, answer)

    def collect(self, node: ObservedNode, log: LogId, upto: int) -> None:
        """The replicated log of a node is about to be collected up to an index."""
        for hook in self._on_collect:
            hook(node, log, upto)

    def store_opened(self, node: ObservedNode, flushed: OpId) -> None:
        """A store was opened with the flushed op id of its superblock."""
        for hook in self._on_store_opened:
            hook(node, flushed)
        node.flushed = flushed
        node.floor = 0

    def proposed(self, node: ObservedNode, flushed: OpId) -> None:
        """A store has proposed an edit that covers everything up to an op id."""
        for hook in self._on_proposed:
            hook(node, flushed)

    def saved(self, node: ObservedNode, block: Superblock, unsynced: Sequence[str]) -> None:
        """A superblock is durable. ``unsynced`` are the files of its edit that are not."""
        for hook in self._on_saved:
            hook(node, block, unsynced)
        node.flushed = block.flushed
        node.edits += 1
        self._scheduler.note(f"{node.position} {block.flushed} {block.manifest.hex()}")

    def missing(self, node: ObservedNode, names: Sequence[str]) -> None:
        """Files that the durable superblock needs are gone."""
        for hook in self._on_missing:
            hook(node, names)

    def checksum(self, node: ObservedNode, engine: str, index: int, checksum: str, schema: Schema = SCHEMA) -> None:
        """A store has computed the checksum of its rows as of an entry."""
        for hook in self._on_checksum:
            hook(node, engine, index, checksum, schema)

    def changed(
        self, node: ObservedNode, op_id: OpId, rows: Mapping[int, RowCells | None], schema: Schema = SCHEMA
    ) -> None:
        """A store has returned the rows that an entry changed."""
        for hook in self._on_changed:
            hook(node, op_id, rows, schema)

    def schema_applied(self, node: ObservedNode, op_id: OpId, schema: Schema) -> None:
        """A replica is about to apply a schema change."""
        for hook in self._on_schema:
            hook(node, op_id, schema)
        self.world.agreed.schema_applied(op_id, schema)

    def altered(self, schema: Schema, *, taken: bool) -> None:
        """A schema change was acknowledged (``taken``) or refused permanently."""
        for hook in self._on_altered:
            hook(schema, taken=taken)

    def node_changed(self, node: ObservedNode, change: NodeChange) -> None:
        """The process, the disk or the clock of a node has changed."""
        for hook in self._on_node:
            hook(node, change)

    def hard_state_saved(self, node: ObservedNode, hard_state: HardState, config: TabletConfig) -> None:
        """Hard state and committed config is durable in the consensus metadata of a node."""
        for hook in self._on_hard_state_saved:
            hook(node, hard_state)
        node.saved = hard_state
        for hook in self._on_config_saved:
            hook(node, config)
        node.saved_config = config.op_id

    def replica_asked(self, node: ObservedNode, new: NewReplica) -> None:
        """A leader asks the node of a new member to create a replica."""
        for hook in self._hooks("on_replica_asked"):
            hook(node, new)

    def replica_on_disk(self, node: ObservedNode, state: ReplicaOnDisk) -> None:
        """A creation of a replica begins, begins to write the superblock, or has ended."""
        for hook in self._hooks("on_replica_on_disk"):
            hook(node, state)
        node.on_disk = state
        if state is ReplicaOnDisk.BEGUN:
            node.block = None  # The creation of an empty replica begins where nothing is, maybe after an undone copy.

    def copy_asked(self, node: ObservedNode, asked: StartCopy) -> None:
        """A leader asks the node of a member to copy the tablet."""
        for hook in self._hooks("on_copy_asked"):
            hook(node, asked)

    def copy_served(self, node: ObservedNode, peer: NodeId, session: CopySession) -> None:
        """A node has opened a session of a copy for another one, or has returned the open one."""
        for hook in self._hooks("on_copy_served"):
            hook(node, peer, session)

    def copy_ended(self, node: ObservedNode, session: str) -> None:
        """A node ends an open session of a copy that it serves, because the target says so."""
        for hook in self._hooks("on_copy_ended"):
            hook(node, session)

    def damage_installed(self, node: ObservedNode, paths: Sequence[str]) -> None:
        """A replica is READY, and damaged items of its copy are still on the disk."""
        for hook in self._hooks("on_damage_installed"):
            hook(node, paths)

    def deletion_asked(self, node: ObservedNode, seen: OpId) -> None:
        """A master asks a node to delete its replica. It has seen that committed config, without the node."""
        for hook in self._hooks("on_deletion_asked"):
            hook(node, seen)

    def voter_restored(self, node: ObservedNode, hard_state: HardState) -> None:
        """A tombstone was loaded, with what the node has read back from its disk."""
        for hook in self._hooks("on_voter"):
            hook(node, hard_state)
        node.saved = node.hard_state = hard_state

    def superblock_begins(self, node: ObservedNode, block: Superblock) -> None:
        """A superblock is about to be written. After a crash there is this one or the one before."""
        if self.world.copies and (state := ON_DISK_WHILE.get(state_change(node.block, block))) is not None:
            node.on_disk = state

    def superblock_saved(
        self, node: ObservedNode, block: Superblock, log: LogModel | None, unsynced: Sequence[str]
    ) -> None:
        """A superblock is durable. ``log`` is the model of its log, ``unsynced`` its store's files that are not."""
        before, change = node.block, state_change(node.block, block)
        for hook in self._hooks("on_superblock"):
            hook(node, before, block, log)
        node.block = block
        if self.world.copies and (state := ON_DISK_AFTER.get(change)) is not None:
            node.on_disk = state
        if change == (DataState.READY, DataState.DELETED):
            node.status, node.rows_damaged = None, False
            self.node_changed(node, NodeChange.REPLICA_DELETED)
        if block.data_state is not DataState.READY:
            node.flushed, node.floor, node.log_only = ZERO, 0, False
            return
        node.log_only = block.log_only
        if rows_are_copied(before, block):
            node.flushed = ZERO  # Rows that are copied to a log may be older than what the log was not needed for.
            node.floor_max = max(other.floor_max for other in self.world.nodes)  # The copied files have their source's.
            self.saved(node, block, unsynced)
        if rows_reach_log(before, block):
            self.node_changed(node, NodeChange.ROWS_COPIED)
            self.coverage.hit("copies.rows_reached_log")

    def replica_found(self, node: ObservedNode, block: Superblock | None, *, exists: bool) -> None:
        """A node has started, has that superblock, and has a replica or has none."""
        if node.on_disk in (ReplicaOnDisk.BEGUN, ReplicaOnDisk.ENDING):
            self.coverage.hit(f"new_replica.cut_short_{'whole' if exists else 'nothing'}")
        for hook in self._hooks("on_replica_found"):
            hook(node, exists=exists)
        tombstone = not exists and block is not None and block.tombstone is not None
        without = ReplicaOnDisk.TOMBSTONE if tombstone else ReplicaOnDisk.NOTHING
        node.on_disk = ReplicaOnDisk.WHOLE if exists else without
        if tombstone:
            node.flushed, node.floor = ZERO, 0
        node.log_only = exists and block is not None and block.log_only
        node.block = block

    def floor_raised(self, node: ObservedNode, floor: int) -> None:
        """The history floor of a store was set."""
        node.floor = max(node.floor, floor)
        node.floor_max = max(node.floor_max, floor)

    def looked_up(self, node: ObservedNode, found: ObservedLookup) -> None:
        """A replica has served a lookup as of a hybrid timestamp."""
        for hook in self._on_looked_up:
            hook(node, found)

    def scanned(self, node: ObservedNode, scanned: ObservedScan) -> None:
        """A replica has served a scan as of a hybrid timestamp, or has refused a scan or a lookup as too old."""
        for hook in self._on_scanned:
            hook(node, scanned)

    def expected_rows(self) -> dict[int, RowCells]:
        """Return the cells by key that the agreed writes produce."""
        return self.world.agreed.rows()

    def at_end(self) -> None:
        """The run is over: all faults are healed and every write has an answer."""
        for invariant in self._invariants:
            invariant.at_end()

    def _hooks(self, name: str) -> list[Hook]:
        """Return the bound hooks of that name, of the invariants and listeners that override it."""
        default: Any = getattr(FactListener, name)
        return [getattr(listener, name) for listener in self._listeners if getattr(type(listener), name) is not default]

    def _count(self, ready: Ready) -> None:
        for field in ready.__struct_fields__:
            value = getattr(ready, field)
            if value is not None and value != ():
                self.coverage.hit(f"ready.{field}")

    def _committed(self, node: ObservedNode, ready: Ready) -> None:
        """Record a commit index. The view must have the entries of this Ready by now."""
        assert ready.commit is not None
        node.commit = max(node.commit, ready.commit)
        self.world.learn_commit(node, ready.commit)


def _no_listener(_position: int) -> None:
    """Do nothing: no listener is set."""


def _configs(ready: Ready) -> list[TabletConfig]:
    if ready.append is None:
        return []
    return [decode_config(e) for e in ready.append.entries if e.kind is EntryKind.CONFIG]
