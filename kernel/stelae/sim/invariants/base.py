"""The base class of invariants, the facts that they judge, and the hooks by which these facts arrive.

An invariant overrides the hooks of the facts that it judges, and calls ``fail`` on a violation. It
never raises into the code under test: that code might catch the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from stelae.host.new_replica import NewReplica
from stelae.host.start_copy import StartCopy
from stelae.host.superblock import Superblock
from stelae.sim.history import SCHEMA, ClientAnswer, ClientOperation, RowErrors
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.log_model import LogModel
from stelae.sim.node_change import NodeChange
from stelae.sim.stale_probe import StaleDelivery
from stelae.sim.table import Cell, RowCells
from stelae.sim.world import Needs, ObservedNode, World
from stelae.spi.consensus import HardState, LogView, Outbound, Ready, Status
from stelae.spi.consensus_events import Event
from stelae.spi.copy import CopySession
from stelae.spi.ids import LogId, NodeId, OpId
from stelae.spi.log import Entry
from stelae.spi.members import TabletConfig
from stelae.spi.schema import Schema
from stelae.spi.wal import Append, LogState, Outcome
from stelae.spi.write import SourceFence


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation of an invariant: its name, the detail, and the virtual time in microseconds."""

    invariant: str
    detail: str
    at_us: int


class AppliedRequest(msgspec.Struct, frozen=True):
    """One request of a log entry as a replica applied it.

    Attributes:
        op_id: op id of its entry.
        order: its position within the entry.
        skipped: true if the replica treated it as a repetition and changed nothing.
        errors: refused rows.
        digest: hash of its payload; 0 if not known.
        version: version of the schema for which its rows were made.
        fence: its source and epoch; ``None`` if it has none.
        first_incomplete: what its entry says of its client: all operations below it are settled (``stelae.spi.write``).
    """

    op_id: OpId
    order: int
    client: str
    sequence: int
    skipped: bool
    errors: RowErrors
    digest: int = 0
    version: int = SCHEMA.version
    fence: SourceFence | None = None
    first_incomplete: int = 1


class ObservedScan(msgspec.Struct, frozen=True):
    """The result of a scan of all rows, once its cursor is at its end.

    Attributes:
        at: hybrid timestamp as of which the rows were read, or for which the scan was refused.
        floor: history floor in force when the cursor was opened.
        rows: all columns, the key first, in key order; ``None`` if the scan was refused as too old.
        refused_floor: history floor that the refusal named.
        schema: schema under which the rows were read.
        at_least: lowest hybrid timestamp that the reader accepts; ``at`` must not be lower.
    """

    at: int
    floor: int
    rows: tuple[tuple[Cell, ...], ...] | None
    refused_floor: int = 0
    schema: Schema = SCHEMA
    at_least: int = 0


class ObservedLookup(msgspec.Struct, frozen=True):
    """The rows that a replica returned for some keys.

    Attributes:
        at: hybrid timestamp as of which they were read.
        floor: history floor in force when the request arrived.
        ids: ids of the columns.
        rows: for each key its cells, the key among them; ``None``: it has no row.
    """

    at: int
    floor: int
    ids: tuple[int, ...]
    rows: tuple[tuple[int, Sequence[Cell] | None], ...]


class FactListener:
    """Base class of all that listens to the facts of a run: hooks that do nothing.

    A hook of a node gets the node's view as it was *before* the fact, except ``on_status``."""

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """A node has started with what it read back from its disk. The view is not reset yet."""

    def on_step(self, node: ObservedNode, events: Sequence[Event]) -> None:
        """A core, or the voter of a tombstone, is about to handle events."""

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """A core returned effects."""

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """A core returned its status. ``node`` is up to date."""

    def on_sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """A replica sends a consensus message. ``needs`` must be durable by now."""

    def on_read(self, node: ObservedNode, token: int) -> None:
        """A core was asked for a read index."""

    def on_stale(self, node: ObservedNode, delivery: StaleDelivery) -> None:
        """A message of an older term was delivered to a copy of the core."""

    def on_use_after_failed_sync(self, node: ObservedNode, operation: str, path: str) -> None:
        """A process wrote to or synced a file after a sync of the file had failed."""

    def on_recovered(
        self, node: ObservedNode, log: LogId, state: LogState, found: list[Entry], model: LogModel
    ) -> None:
        """A log engine has recovered a log, the replicated one or a local one."""

    def on_wal(self, node: ObservedNode, append: Append, outcome: Outcome) -> None:
        """The replicated log has reported the outcome of an append."""

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """A replica has applied one entry."""

    def on_invoked(self, operation: ClientOperation) -> None:
        """A client has begun an operation."""

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """A client has received an answer from the node at ``answer.node``."""

    def on_collect(self, node: ObservedNode, log: LogId, upto: int) -> None:
        """A log is about to be collected up to an index."""

    def on_store_opened(self, node: ObservedNode, flushed: OpId) -> None:
        """A store was opened with the flushed op id of its superblock."""

    def on_proposed(self, node: ObservedNode, flushed: OpId) -> None:
        """A store has proposed an edit that covers everything up to an op id."""

    def on_saved(self, node: ObservedNode, block: Superblock, unsynced: Sequence[str]) -> None:
        """A superblock with an edit of the store is durable. ``unsynced`` are the files of the edit that are not."""

    def on_missing(self, node: ObservedNode, names: Sequence[str]) -> None:
        """Files that the durable superblock of a running replica needs are gone."""

    def on_checksum(self, node: ObservedNode, engine: str, index: int, checksum: str, schema: Schema) -> None:
        """A store has computed the logical checksum of its rows as of the entry at an index, under a schema."""

    def on_changed(self, node: ObservedNode, op_id: OpId, rows: Mapping[int, RowCells | None], schema: Schema) -> None:
        """A store has returned what one entry changed, under a schema: cells by key, ``None`` for a deleted row."""

    def on_schema(self, node: ObservedNode, op_id: OpId, schema: Schema) -> None:
        """A replica is about to apply a schema change."""

    def on_config_saved(self, node: ObservedNode, config: TabletConfig) -> None:
        """A config is in durable consensus metadata."""

    def on_altered(self, schema: Schema, *, taken: bool) -> None:
        """A schema change was acknowledged (``taken``) or refused permanently."""

    def on_scanned(self, node: ObservedNode, scanned: ObservedScan) -> None:
        """A replica has served a scan as of a hybrid timestamp, or has refused a scan or a lookup as too old."""

    def on_looked_up(self, node: ObservedNode, found: ObservedLookup) -> None:
        """A replica has served a lookup as of a hybrid timestamp."""

    def on_node(self, node: ObservedNode, change: NodeChange) -> None:
        """The process, the disk or the clock of a node has changed."""

    def on_hard_state_saved(self, node: ObservedNode, hard_state: HardState) -> None:
        """A hard state is durable in the consensus metadata."""

    def on_replica_asked(self, node: ObservedNode, new: NewReplica) -> None:
        """A leader asks the node of a new member to create a replica."""

    def on_replica_on_disk(self, node: ObservedNode, state: ReplicaOnDisk) -> None:
        """A creation of a replica begins, begins to write the superblock, or has ended."""

    def on_replica_found(self, node: ObservedNode, *, exists: bool) -> None:
        """A node has started, and has a replica on its disk or has none."""

    def on_copy_asked(self, node: ObservedNode, asked: StartCopy) -> None:
        """A leader asks the node of a member to copy the tablet."""

    def on_copy_served(self, node: ObservedNode, peer: NodeId, session: CopySession) -> None:
        """A node has opened a session of a copy for another one, or has returned the open one."""

    def on_copy_ended(self, node: ObservedNode, session: str) -> None:
        """A node ends an open session of a copy that it serves."""

    def on_damage_installed(self, node: ObservedNode, paths: Sequence[str]) -> None:
        """A copied replica is READY, and damaged items of the copy are still on the disk, at these paths."""

    def on_deletion_asked(self, node: ObservedNode, seen: OpId) -> None:
        """A master asks a node to delete its replica. It has seen that committed config, without the node."""

    def on_voter(self, node: ObservedNode, hard_state: HardState) -> None:
        """A tombstone was loaded, with a hard state that was read back from the disk."""

    def on_superblock(
        self, node: ObservedNode, before: Superblock | None, block: Superblock, log: LogModel | None
    ) -> None:
        """A superblock is durable, after the one ``before``. ``log`` is the model of the log that it names."""


class Invariant(FactListener):
    """Base class of all invariants: the world, and ``fail``."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Source of the rule: a section of a paper, or a rule of the design."""

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        self.world = world
        self._report = report

    def fail(self, detail: str) -> None:
        """Report a violation. The first one ends the run."""
        self._report(self.name, detail)

    def at_end(self) -> None:
        """The run is over: all faults are healed and every write has an answer."""
