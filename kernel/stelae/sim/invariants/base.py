"""What an invariant is: an object that is shown what happens, and says when it must not.

An invariant overrides the hooks that concern it and calls ``fail``. It never raises into the code
under test: that code might swallow it, and an exception is a different finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from stelae.host.superblock import Superblock
from stelae.sim.history import SCHEMA, ClientAnswer, ClientOperation, RowErrors
from stelae.sim.log_model import LogModel
from stelae.sim.stale import Told
from stelae.sim.table import Cell, Cells
from stelae.sim.world import Needs, ObservedNode, World
from stelae.spi.consensus import HardState, LogView, Outbound, Ready, Status
from stelae.spi.ids import LogId, OpId
from stelae.spi.log import Entry
from stelae.spi.schema import Schema
from stelae.spi.wal import Append, LogState, Outcome


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that did not hold, and when."""

    invariant: str
    detail: str
    at_us: int


class AppliedRequest(msgspec.Struct, frozen=True):
    """One request of a log entry as a replica applied it.

    Attributes:
        op_id: of the entry that carried it.
        order: its place within the entry.
        skipped: true when the replica took it for a repetition and changed nothing.
        errors: rows that were not taken.
        digest: hash of its payload; 0: not known.
        version: of the schema for which its rows were made.
    """

    op_id: OpId
    order: int
    client: str
    sequence: int
    skipped: bool
    errors: RowErrors
    digest: int = 0
    version: int = SCHEMA.version


class Scanned(msgspec.Struct, frozen=True):
    """What a scan of all rows at a hybrid timestamp came to, once its cursor was at its end.

    Attributes:
        at: at or below the timestamp of what the replica had applied.
        floor: the history floor in force when the cursor was opened.
        rows: all columns, the key first, in key order; ``None``: refused as too old.
        told: the floor that the refusal named.
        schema: the schema under which the rows were read.
        at_least: what the reader must see is at or below this time, so ``at`` must not be lower.
    """

    at: int
    floor: int
    rows: tuple[tuple[Cell, ...], ...] | None
    told: int = 0
    schema: Schema = SCHEMA
    at_least: int = 0


class Invariant:
    """Base of all invariants: hooks that do nothing, and ``fail``.

    Hooks of a node get its view as it was *before* the fact, except ``on_status``."""

    name: ClassVar[str]
    source: ClassVar[str]
    """Where the rule is from: a paper's section, a rule of the design."""

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        self.world = world
        self._report = report

    def fail(self, detail: str) -> None:
        """Report a violation; the first one ends the run."""
        self._report(self.name, detail)

    def on_restart(self, node: ObservedNode, hard_state: HardState, log: LogView, commit: int) -> None:
        """A node has started: what its disk gave back, before the view is reset."""

    def on_ready(self, node: ObservedNode, ready: Ready) -> None:
        """A core gave out its effects."""

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """A core's snapshot changed; ``node`` is up to date."""

    def on_sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """A consensus message goes on the wire; ``needs`` must be durable by now."""

    def on_read(self, node: ObservedNode, token: int) -> None:
        """A read index was asked for, of the core."""

    def on_stale(self, node: ObservedNode, told: Told) -> None:
        """A copy of the core was told something of an older term."""

    def on_trusted_again(self, node: ObservedNode, operation: str, path: str) -> None:
        """A process wrote to a file, or synced it, of which it knows that a sync has failed."""

    def on_recovered(
        self, node: ObservedNode, log: LogId, state: LogState, found: list[Entry], model: LogModel
    ) -> None:
        """A log engine has recovered a log, the replicated one or another."""

    def on_wal(self, node: ObservedNode, append: Append, outcome: Outcome) -> None:
        """The replicated log has answered an append."""

    def on_applied(self, node: ObservedNode, op_id: OpId, requests: Sequence[AppliedRequest]) -> None:
        """A replica has applied one entry."""

    def on_invoked(self, operation: ClientOperation) -> None:
        """A client has begun an operation."""

    def on_answered(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        """A client has its answer, from the node at ``answer.node``."""

    def on_collect(self, node: ObservedNode, log: LogId, upto: int) -> None:
        """A log is about to be collected up to an index."""

    def on_store_opened(self, node: ObservedNode, flushed: OpId) -> None:
        """A store was opened at what the superblock calls flushed."""

    def on_proposed(self, node: ObservedNode, flushed: OpId) -> None:
        """A store has proposed an edit that covers everything up to an op id."""

    def on_saved(self, node: ObservedNode, block: Superblock, unsynced: Sequence[str]) -> None:
        """A superblock with an edit is durable; of the files that the edit names, these are not."""

    def on_missing(self, node: ObservedNode, names: Sequence[str]) -> None:
        """Files that belong to the durable superblock of a running replica are gone."""

    def on_checksum(self, node: ObservedNode, engine: str, index: int, checksum: str, schema: Schema) -> None:
        """The logical checksum of a replica's rows as of the entry at an index, as they read under a schema."""

    def on_changed(self, node: ObservedNode, op_id: OpId, rows: Mapping[int, Cells | None], schema: Schema) -> None:
        """What one entry has changed in a store, under a schema: cells by key, ``None`` where the row went."""

    def on_schema(self, node: ObservedNode, op_id: OpId, schema: Schema) -> None:
        """A replica is about to apply a schema change."""

    def on_altered(self, schema: Schema, *, taken: bool) -> None:
        """Whoever asked for a schema change has its answer: it is in force, or was refused for good."""

    def on_scanned(self, node: ObservedNode, scanned: Scanned) -> None:
        """A replica was read at a time in its past."""

    def at_end(self) -> None:
        """The run is over, healed and quiet."""
