"""Clients that change tables and read the catalog. They retry each change until they have its outcome."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stelae.partition.schema import HashLevel, KeyRange, PartitionSchema
from stelae.protocol.catalog_names import TableId
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_errors import ChangeFailed
from stelae.protocol.master_messages import (
    CHANGE,
    READ,
    AddColumn,
    AddRange,
    AlterTable,
    CatalogReadRequest,
    Change,
    ChangeOutcome,
    ChangeRefused,
    ChangeReply,
    ChangeRequest,
    CreateTable,
    DeleteTable,
    DropRange,
    GetTable,
    ListTables,
    Question,
    RecallTable,
    RenameTable,
    TableDescription,
)
from stelae.sim.draw import between, chance, pick
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.masters_follower import MastersFollower
from stelae.sim.masters.messenger import Answered, CallAnswer
from stelae.sim.masters.network import SimEndpoint
from stelae.sim.masters.world import MastersWorld
from stelae.spi.errors import NotLeader, RetryableError, StelaeError
from stelae.spi.ids import ClientId, NodeId
from stelae.spi.schema import Column, Schema
from stelae.wire.refusals import HandlerFailed, error_of

NAMES = ("ants", "bees", "crows", "deer", "eels")
PATIENCE_US = 700_000
STALENESS_MS = 2_000

_SCHEMA = Schema(1, (Column(id=1, name="k", type="string"), Column(id=2, name="v", type="int64", nullable=True)), (1,))
_RANGES = tuple(KeyRange(bytes([n]), bytes([n + 1])) for n in range(97, 103))


@dataclass(slots=True, kw_only=True)
class ClientChange:
    """One change of a client, from its first attempt to its outcome.

    Attributes:
        attempts: number of attempts so far.
        outcome: the outcome, once a master has given it.
    """

    request: ChangeRequest
    attempts: int = 0
    outcome: ChangeOutcome | None = None


OutcomeTaken = Callable[[ClientChange], None]
DescriptionTaken = Callable[[TableDescription], None]


class SimClient:
    """One client. It has one change open at a time, and reads the catalog between changes.

    Attributes:
        stopping: true once the client must not start new changes.
        changes_max: limit on the changes of the client; ``None`` for no limit.
    """

    def __init__(
        self, world: MastersWorld, number: int, rng: random.Random, masters: Mapping[NodeId, SimMaster]
    ) -> None:
        self.endpoint = SimEndpoint(f"c{number}")
        self.stopping = False
        self.on_outcome: OutcomeTaken = lambda client_change: None
        self.on_description: DescriptionTaken = lambda description: None
        self.changes_max: int | None = None
        self._world = world
        self._rng = rng
        self._client_id = ClientId(f"client-{number}")
        self._node_id = NodeId(f"{0xC11 + number:032x}")
        self.following = MastersFollower(world, self.endpoint, self._node_id, masters, [*masters.values()])
        self.following.on_changed = self._masters_changed
        self._sequence = 0
        self._open: ClientChange | None = None
        self._removable: list[TableId] = []
        self._altered: TableId | None = None
        self._target = between(rng, 0, len(self._masters) - 1)

    @property
    def _masters(self) -> Sequence[SimMaster]:
        return self.following.masters

    def _masters_changed(self) -> None:
        """Turn to the leader of the masters that it has just learned."""
        view = self.following.view
        nodes = [master.node_id for master in self._masters]
        leader = None if view is None else view.leader
        self._target = nodes.index(leader) if leader in nodes else 0

    @property
    def idle(self) -> bool:
        """True if no change waits for its outcome."""
        return self._open is None

    def start(self) -> None:
        """Begin to change tables."""
        self._after(between(self._rng, 0, 500_000), self._next)

    def _after(self, delay_us: int, action: Callable[[], None]) -> None:
        self._world.scheduler.after(delay_us, f"{self.endpoint.name} goes on", action)

    # -- changes -----------------------------------------------------------------------------------

    def _next(self) -> None:
        if self.stopping or (self.changes_max is not None and self._sequence >= self.changes_max):
            return
        self._sequence += 1
        request = ChangeRequest(
            client_id=self._client_id,
            sequence=self._sequence,
            first_incomplete=self._sequence,
            change=self._draw_change(),
        )
        self._open = ClientChange(request=request)
        self._attempt(self._open)

    def _attempt(self, client_change: ClientChange) -> None:
        """Send the change to a master, and to another one if no answer arrives."""
        if client_change.outcome is not None:
            return
        client_change.attempts += 1
        attempt = client_change.attempts
        if attempt > 1:
            self._world.coverage.hit("client.retry")
        master = self._masters[self._target]
        self._request(
            master, CHANGE, encode(client_change.request), lambda answer: self._answered(client_change, attempt, answer)
        )
        self._after(PATIENCE_US, lambda: self._give_up(client_change, attempt))

    def _request(self, master: SimMaster, kind: str, body: bytes, answered: Answered) -> None:
        """Send one request. ``answered`` runs for each answer that arrives."""
        network = self._world.network

        def answer(result: CallAnswer) -> None:
            network.send(master.endpoint.name, self.endpoint, "answer", lambda: answered(result))

        network.send(
            self.endpoint.name, master.endpoint, kind, lambda: master.receive_request(self._node_id, kind, body, answer)
        )

    def _give_up(self, client_change: ClientChange, attempt: int) -> None:
        if client_change.outcome is None and client_change.attempts == attempt:
            self._target = between(self._rng, 0, len(self._masters) - 1)
            self.following.look()
            self._attempt(client_change)

    def _answered(self, client_change: ClientChange, attempt: int, answer: CallAnswer) -> None:
        """Handle an answer. A final answer decides the change, even if its attempt has timed out."""
        if client_change.outcome is not None:
            return
        if isinstance(answer, bytes):
            client_change.outcome = decode(answer, ChangeReply)
            self._on_decided(client_change)
            return
        error = error_of(answer)
        if isinstance(error, RetryableError):
            self._world.coverage.hit(f"refused.{error.code}")
            if client_change.attempts == attempt:
                client_change.attempts += 1
                self._follow(error)
                self._after(between(self._rng, 5_000, 100_000), lambda: self._attempt(client_change))
            return
        assert error.code not in (ChangeFailed.code, HandlerFailed.code), f"a change met an unexpected error: {error}"
        client_change.outcome = ChangeRefused(code=str(answer["code"]), detail=str(answer["text"]))
        self._on_decided(client_change)

    def _follow(self, error: StelaeError) -> None:
        nodes = [master.node_id for master in self._masters]
        if isinstance(error, NotLeader) and error.leader in nodes:
            self._target = nodes.index(NodeId(error.leader))
        else:
            self._target = between(self._rng, 0, len(self._masters) - 1)
            self.following.look()

    def _on_decided(self, client_change: ClientChange) -> None:
        change = type(client_change.request.change).__name__
        assert client_change.outcome is not None
        result = "refused" if isinstance(client_change.outcome, ChangeRefused) else "done"
        self._world.coverage.hit(f"change.{change}.{result}")
        self._remember_soft_deleted(client_change.request.change, client_change.outcome)
        self._remember_altered(client_change.request.change, client_change.outcome)
        self._open = None
        self.on_outcome(client_change)
        self._ask(GetTable(table=pick(self._rng, NAMES)) if chance(self._rng, 0.8) else ListTables())
        pause_us = 900_000 if self._altered is None else 20_000
        self._after(between(self._rng, 1_000, pause_us), self._next)

    def _remember_soft_deleted(self, change: Change, outcome: ChangeOutcome) -> None:
        soft = isinstance(change, DeleteTable) and change.keep_ms > 0
        if soft and isinstance(outcome, ChangeReply) and outcome.table_id is not None:
            self._removable.append(outcome.table_id)

    def _remember_altered(self, change: Change, outcome: ChangeOutcome) -> None:
        """Choose some of the tables that got a column to get another one at once."""
        adds = isinstance(change, AlterTable) and isinstance(change.steps[0], AddColumn)
        again = adds and isinstance(outcome, ChangeReply) and chance(self._rng, 0.6)
        self._altered = outcome.table_id if again and isinstance(outcome, ChangeReply) else None

    def _draw_change(self) -> Change:
        if self._altered is not None:
            return _add_column(self._rng, self._altered)
        name, share = pick(self._rng, NAMES), self._rng.random()
        if share < 0.45:
            return self._draw_create(name)
        if share < 0.6:
            return _add_column(self._rng, name)
        if share < 0.68:
            return AlterTable(table=name, steps=(RenameTable(to=pick(self._rng, NAMES)),))
        if share < 0.78:
            one = pick(self._rng, _RANGES)
            return AlterTable(
                table=name, steps=(AddRange(range=one) if chance(self._rng, 0.6) else DropRange(range=one),)
            )
        if share < 0.92 or not self._removable:
            return DeleteTable(table=name, keep_ms=between(self._rng, 500, 6_000) if chance(self._rng, 0.5) else 0)
        table_id = self._removable.pop()
        return RecallTable(table_id=table_id) if chance(self._rng, 0.8) else DeleteTable(table=table_id)

    def _draw_create(self, name: str) -> CreateTable:
        buckets = between(self._rng, 1, 3)
        levels = (HashLevel((1,), buckets),) if buckets > 1 else ()
        count = between(self._rng, 0, 2)
        spread = PartitionSchema(levels, (1,), _RANGES[:count]) if count else PartitionSchema(levels)
        factor = 3 if chance(self._rng, 0.8) else 1
        return CreateTable(
            name=name, schema=_SCHEMA.to_bytes(), partition_schema=spread.to_bytes(), replication_factor=factor
        )

    # -- catalog reads -----------------------------------------------------------------------------

    def _ask(self, question: Question) -> None:
        master = self.following.to_read(self._rng)
        staleness_ms = STALENESS_MS if chance(self._rng, 0.5) else 0
        request = CatalogReadRequest(question=question, staleness_ms=staleness_ms)
        described = isinstance(question, GetTable)
        self._request(master, READ, encode(request), lambda answer: self._read_answered(answer, described=described))

    def _read_answered(self, answer: CallAnswer, *, described: bool) -> None:
        self._world.coverage.hit("read.answered" if isinstance(answer, bytes) else f"read.{error_of(answer).code}")
        if isinstance(answer, bytes) and described:
            self.on_description(decode(answer, TableDescription))


def _add_column(rng: random.Random, table: str) -> AlterTable:
    return AlterTable(table=table, steps=(AddColumn(name=f"c{between(rng, 0, 99)}", type="int64"),))
