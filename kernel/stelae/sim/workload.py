"""Model clients: they read, write, retry on any node, and repeat writes on purpose.

A client keeps several writes open, tries nodes until it finds the leader, and retries every write
under its identity until it has an answer. It sends some answered writes once more, much later. It
also sends some identities with another payload. Both must change nothing. A request that repeats a
write may also hold its neighbours, answered or open, and new writes (see ``request_grouping``).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stelae.sim.coverage import Coverage
from stelae.sim.draw import below, between, chance, pick, skewed
from stelae.sim.fact_feed import FactFeed
from stelae.sim.history import SCHEMA, AnswerKind, ClientAction, ClientAnswer, ClientOperation, History, HistoryRow
from stelae.sim.profile import Profile
from stelae.sim.request_grouping import neighbours
from stelae.sim.row_generator import RowGenerator
from stelae.sim.scheduler import ScheduledEvent, Scheduler
from stelae.sim.schema_changer import TableView

WRITES = (
    ClientAction.UPSERT,
    ClientAction.UPSERT,
    ClientAction.UPSERT,
    ClientAction.INSERT,
    ClientAction.UPDATE,
    ClientAction.DELETE,
)
BATCH_MAX = 6
ONE_KIND = 0.6
"""Share of the requests whose new writes are all of one kind, so that they form one sequence range."""

REGROUPED = 0.5
"""Share of the repeated writes that are sent with their neighbours."""

EXTENDED = 0.3
"""Share of the retries with neighbours that also hold new writes."""

IMPOSED = 0.3
"""Share of the repetitions that send another payload under the identity of the write."""

SETTLING = 0.5
"""Share of the requests that settle as many answers as possible, even those of writes in the request."""


class WorkloadTablet(Protocol):
    """Sends client requests to replicas over the network. An answer may arrive never, once or twice."""

    def write(
        self,
        client: int,
        node: int,
        operations: Sequence[ClientOperation],
        first_incomplete: int,
        answer: Callable[[ClientOperation, ClientAnswer], None],
    ) -> None:
        """Send writes of one client in one request."""
        ...

    def read(self, client: int, node: int, operation: ClientOperation, answer: Callable[[ClientAnswer], None]) -> None:
        """Send one read."""
        ...


@dataclass(frozen=True, slots=True)
class WorkloadContext:
    """What all clients of a run share."""

    scheduler: Scheduler
    tablet: WorkloadTablet
    history: History
    facts: FactFeed
    profile: Profile
    coverage: Coverage
    table: TableView


class ModelClient:
    """One model client.

    Args:
        number: number of the client from 0. Clients have network positions above those of the nodes.
        operations_max: limit on the operations that it starts; ``None`` for no limit.
    """

    def __init__(self, context: WorkloadContext, number: int, rng: random.Random, operations_max: int | None) -> None:
        self._context = context
        self._number = number
        self._rng = rng
        self._left = operations_max
        self._name = f"client-{number}"
        self._rows = RowGenerator(self._name, rng, context.profile, context.coverage)
        self._schema = SCHEMA
        self._sequence = 0
        self._lag = between(rng, 0, 8)
        self._open: dict[int, ClientOperation] = {}
        self._answered: dict[int, ClientOperation] = {}
        self._writes: dict[int, ClientOperation] = {}
        self._answered_last: ClientOperation | None = None
        self._target = below(rng, context.profile.nodes)
        self._reading: ClientOperation | None = None
        self._retry: dict[int, ScheduledEvent] = {}
        self.stopping = False

    @property
    def name(self) -> str:
        """Client id under which its writes are numbered."""
        return self._name

    @property
    def idle(self) -> bool:
        """True if no write waits for an answer. Reads have no effect and may be abandoned."""
        return not self._open

    def start(self) -> None:
        """Begin to read and write at random times until ``stopping``."""
        context = self._context
        think_us = skewed(self._rng, *context.profile.think_us)
        context.scheduler.after(think_us, f"{self._name}.act", self._act)

    def _act(self) -> None:
        if self.stopping or self._left == 0:
            return
        if chance(self._rng, self._context.profile.reads):
            self._begin_read()
        elif len(self._open) < self._context.profile.in_flight_max:
            self._begin_writes()
        self.start()

    # -- reads -----------------------------------------------------------------------------------

    def _begin_read(self) -> None:
        """Start a read. A client has one read at a time: an unanswered read is abandoned."""
        if self._reading is not None and self._reading.answered is None:
            self._target = below(self._rng, self._context.profile.nodes)
        operation = self._new(0, ClientAction.READ, (self._rows.draw_row(),))
        self._reading = operation

        def answered(answer: ClientAnswer) -> None:
            if operation.answered is not None or self._reading is not operation:
                return
            self._reading = None
            if answer.kind is AnswerKind.DONE:
                self._end(operation, answer)
            else:
                self._choose_target(answer)

        self._context.tablet.read(self._number, self._target, operation, answered)

    # -- writes ----------------------------------------------------------------------------------

    def _begin_writes(self) -> None:
        room = self._context.profile.in_flight_max - len(self._open)
        self._send(self._new_writes(between(self._rng, 1, min(BATCH_MAX, room)), pick(self._rng, WRITES)))

    def _new_writes(self, count: int, action: ClientAction) -> list[ClientOperation]:
        """Start ``count`` writes. In most cases all are of the kind ``action``."""
        one_kind = chance(self._rng, ONE_KIND)
        batch = []
        for _ in range(count):
            self._sequence += 1
            operation = self._new(
                self._sequence, action if one_kind else pick(self._rng, WRITES), self._rows.draw_rows()
            )
            self._open[operation.sequence] = self._writes[operation.sequence] = operation
            batch.append(operation)
        return batch

    def _send(self, batch: Sequence[ClientOperation]) -> None:
        for operation in batch:
            if operation.answered is None:
                self._schedule_retry(operation)
        lag = 0 if chance(self._rng, SETTLING) else self._lag
        tablet = self._context.tablet
        tablet.write(self._number, self._target, batch, self._first_incomplete(lag), self._on_answer)

    def _with_neighbours(self, operation: ClientOperation) -> list[ClientOperation]:
        """Return an open write, perhaps with neighbours that are open or not settled yet, and with new writes."""
        if not chance(self._rng, REGROUPED):
            return [operation]
        batch = neighbours(self._open | self._answered, operation, self._rng)
        room = self._context.profile.in_flight_max - len(self._open)
        if room > 0 and self._left != 0 and not self.stopping and chance(self._rng, EXTENDED):
            batch += self._new_writes(between(self._rng, 1, room), batch[-1].action)
        return batch

    def _schedule_retry(self, operation: ClientOperation) -> None:
        """Schedule a retry on another node, in case no answer arrives in time."""
        t_us = self._context.profile.election_timeout_ms * 1_000
        wait_us = between(self._rng, t_us // 2, t_us * 2)
        self._retry_after(operation, wait_us, elsewhere=True)

    def _retry_after(self, operation: ClientOperation, wait_us: int, *, elsewhere: bool) -> None:
        pending = self._retry.pop(operation.sequence, None)
        if pending is not None:
            pending.cancel()

        def resend() -> None:
            self._context.coverage.hit("client.retry")
            if elsewhere:
                self._target = below(self._rng, self._context.profile.nodes)
            self._send(self._with_neighbours(operation))

        label = f"{self._name}.retry"
        self._retry[operation.sequence] = self._context.scheduler.after(wait_us, label, resend)

    def _first_incomplete(self, lag: int) -> int:
        """Return the lowest sequence number that is not settled, and settle all answers below it.

        ``lag`` is how far below the lowest open write answers may stay unsettled."""
        lowest = min(self._open, default=self._sequence + 1)
        first = max(1, lowest - lag)
        for sequence in [s for s in self._answered if s < first]:
            self._answered.pop(sequence).settled = True
        return first

    def _on_answer(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        self._context.coverage.hit(f"answer.{answer.kind}")
        if answer.kind is AnswerKind.RETRY:
            if operation.answered is None and not operation.imposed:
                self._choose_target(answer)
                self._retry_after(operation, skewed(self._rng, 1_000, 60_000), elsewhere=False)
            return
        if operation.answered is not None or operation.imposed:
            self._context.facts.answered(operation, answer)
            return
        self._end(operation, answer)
        del self._open[operation.sequence]
        self._answered[operation.sequence] = operation
        self._retry.pop(operation.sequence).cancel()
        if answer.kind is AnswerKind.REFUSED:
            self._schema = self._context.table.schema
            return
        self._answered_last = operation
        self._maybe_repeat(operation)

    def leader_serves(self, position: int) -> None:
        """Repeat the last answered write on a new leader, which may not have applied it yet."""
        if self._answered_last is not None and not self.stopping:
            self._repeat(self._maybe_imposed(self._answered_last), position)

    def _maybe_repeat(self, operation: ClientOperation) -> None:
        """Perhaps send an answered write once more, much later, or another payload under its identity."""
        if self.stopping or not chance(self._rng, self._context.profile.repeats):
            return
        repeated = self._maybe_imposed(operation)
        delay_us = skewed(self._rng, 1_000, 3_000_000)

        def send() -> None:
            self._repeat(repeated, below(self._rng, self._context.profile.nodes))

        self._context.scheduler.after(delay_us, f"{self._name}.repeat", send)

    def _maybe_imposed(self, operation: ClientOperation) -> ClientOperation:
        """Return the operation, or another operation with its identity."""
        if not chance(self._rng, IMPOSED):
            return operation
        return ClientOperation(
            client=self._name,
            sequence=operation.sequence,
            action=ClientAction.UPSERT,
            rows=(self._rows.draw_row(),),
            imposed=True,
            settled=True,
            schema=self._schema,
        )

    def _repeat(self, repeated: ClientOperation, target: int) -> None:
        """Send an answered write again, perhaps with its neighbours in any state."""
        self._context.coverage.hit("client.imposed" if repeated.imposed else "client.repeated")
        batch = [repeated]
        if chance(self._rng, REGROUPED):
            batch = neighbours(self._writes, repeated, self._rng)
        first = self._first_incomplete(self._lag)
        if not chance(self._rng, SETTLING):
            first = min(batch[0].sequence, first)
        self._context.tablet.write(self._number, target, batch, first, self._on_answer)

    # -- reads and writes ------------------------------------------------------------------------

    def _new(self, sequence: int, action: ClientAction, rows: tuple[HistoryRow, ...]) -> ClientOperation:
        if self._left is not None:
            self._left = max(0, self._left - 1)
        operation = ClientOperation(client=self._name, sequence=sequence, action=action, rows=rows, schema=self._schema)
        if operation.is_write:
            operation.columns = self._rows.draw_columns(operation)
        self._context.history.begin(operation)
        self._context.facts.invoked(operation)
        return operation

    def _end(self, operation: ClientOperation, answer: ClientAnswer) -> None:
        self._context.history.end(operation, answer)
        self._context.facts.answered(operation, answer)

    def _choose_target(self, answer: ClientAnswer) -> None:
        """Choose the next node: the leader that the answer names, else a random node."""
        nodes, known = self._context.profile.nodes, answer.leader is not None and answer.leader != answer.node
        self._target = answer.leader if known and answer.leader is not None else below(self._rng, nodes)
