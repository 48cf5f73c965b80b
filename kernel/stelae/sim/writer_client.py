"""A client that writes with production's writer, ``stelae.client.writer_core``, in virtual time.

The model clients (``workload``) repeat writes and reuse identities on purpose. This client behaves like a correct
program: it waits for its writes, cancels some, and creates a new writer when the schema has changed, as
``stelae.client.Tablet`` does. The invariants check that each operation has the outcome that the client was given."""

from __future__ import annotations

from typing import Final

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.writer_core import WriterCore
from stelae.sim.client_gateway import ClientGateway
from stelae.sim.draw import between, chance, pick, skewed, stream
from stelae.sim.history import SCHEMA, AnswerKind, ClientAnswer, ClientOperation
from stelae.sim.messenger import VirtualMessenger
from stelae.sim.node_start import TABLET
from stelae.sim.row_generator import RowGenerator
from stelae.sim.table import encode_write
from stelae.sim.workload import WRITES, WorkloadContext
from stelae.spi.errors import DeadlineExceeded, StelaeError
from stelae.spi.ids import ClientId, SourceId
from stelae.spi.write import OpResult, SourceFence, StaleEpoch

FIRST_NUMBER: Final = 60
"""Position of the first writer on the network, above the model clients."""

BATCH_MAX: Final = 4
IN_FLIGHT_MAX: Final = 8

FOLLOWING: Final = 0.3
"""Share of the operations that must be sent in the request of the operation before."""

SHORT_TIMEOUT: Final = 0.15
"""Share of the writes with a timeout below ``SHORT_TIMEOUT_S_MAX``. Most unknown outcomes come from these writes."""

SHORT_TIMEOUT_S_MAX: Final = 2.0
"""Upper bound of a short timeout, in seconds."""

LONG_TIMEOUT_S: Final = 250.0
"""Timeout of all other writes, in seconds. It is longer than the liveness phase, so a write that gets no outcome is a
violation of liveness."""

CANCELLED: Final = 0.03
"""Share of the writes that are cancelled a little later."""

SOURCE: Final = SourceId("job")
"""The one source of all writers: a writer of an earlier epoch is a process of an earlier run that is still alive."""

FENCED: Final = 0.4
"""Share of the writes that have the source and the epoch of their writer."""

NEW_EPOCH: Final = 0.03
"""Share of the writes before which their writer begins the next epoch."""

REFUSALS: Final = {
    "PAYLOAD_MISMATCH": AnswerKind.MISMATCH,
    "STALE_SEQUENCE": AnswerKind.STALE,
    "SCHEMA_MISMATCH": AnswerKind.REFUSED,
    StaleEpoch.code: AnswerKind.REFUSED,
}


class WriterClient:
    """One client with production's writer.

    Args:
        number: number of the client from 0.
        operations_max: limit on the operations that it starts; ``None`` for no limit.
    """

    def __init__(
        self, context: WorkloadContext, gateway: ClientGateway, number: int, seed: int, operations_max: int | None
    ) -> None:
        self._context = context
        self._gateway = gateway
        self._rng = stream(seed, f"writer/{number}")
        self._left = operations_max
        self._name = f"writer-{number}"
        self._rows = RowGenerator(self._name, self._rng, context.profile, context.coverage)
        rng = stream(seed, f"writer/{number}/messenger")
        position = FIRST_NUMBER + number
        self._messenger = VirtualMessenger(context.scheduler, gateway, position, rng, context.profile, context.coverage)
        self._core_rng = stream(seed, f"writer/{number}/core")
        self._epoch_rng = stream(seed, f"writer/{number}/epochs")
        self._epoch = 0
        self._schema = SCHEMA
        self._writers = 0
        self._client = ""
        self._core = self._new_core()
        self._open: set[_OutcomeWaiter] = set()
        self.stopping = False
        self.timestamp = 0
        """Highest hybrid timestamp in the answers to its writes."""

    @property
    def idle(self) -> bool:
        """True if no write waits for an outcome."""
        return not self._open

    def start(self) -> None:
        """Begin to write at random times until ``stopping``."""
        think_us = skewed(self._rng, *self._context.profile.think_us)
        self._context.scheduler.after(think_us, f"{self._name}.act", self._act)

    def _act(self) -> None:
        if self.stopping or self._left == 0:
            return
        room = IN_FLIGHT_MAX - len(self._open)
        for position in range(between(self._rng, 0, min(BATCH_MAX, room))):
            self._write(follows=position > 0 and chance(self._rng, FOLLOWING))
        self.start()

    def _write(self, *, follows: bool) -> None:
        rng = self._rng
        if self._left is not None:
            self._left = max(0, self._left - 1)
        operation = ClientOperation(
            client=self._client,
            sequence=0,
            action=pick(rng, WRITES),
            rows=self._rows.draw_rows(),
            schema=self._schema,
            fence=self._draw_fence(),
        )
        operation.columns = self._rows.draw_columns(operation)
        timeout_s = SHORT_TIMEOUT_S_MAX * rng.random() + 0.01 if chance(rng, SHORT_TIMEOUT) else LONG_TIMEOUT_S
        outcome = _OutcomeWaiter(self, operation)
        operation.sequence = self._core.write(encode_write(operation), timeout_s, outcome, follows=follows)
        self._open.add(outcome)
        self._context.history.begin(operation)
        self._context.facts.invoked(operation)
        if chance(rng, CANCELLED):
            delay_us = skewed(rng, 1_000, 1_000_000)
            self._context.scheduler.after(delay_us, f"{self._name}.let_go", outcome.cancel)

    def _draw_fence(self) -> SourceFence | None:
        history = self._context.history
        if chance(self._epoch_rng, NEW_EPOCH):
            history.epoch += 1
            self._epoch = history.epoch
        return SourceFence(SOURCE, self._epoch) if chance(self._epoch_rng, FENCED) else None

    def answered(self, outcome: _OutcomeWaiter, result: OpResult) -> None:
        """Handle the result of an operation."""
        operation = outcome.operation
        self._open.discard(outcome)
        kind = REFUSALS.get(result.refusal, AnswerKind.DONE)
        if result.refusal and kind is AnswerKind.DONE:
            self._context.facts.report("no_exception", f"{self._name}: a write is refused: {result.refusal}")
        errors = tuple((error.row, error.code.name) for error in result.errors)
        answer = ClientAnswer(kind=kind, node=self._messenger.answering, errors=errors, timestamp=result.timestamp)
        self._context.coverage.hit(f"writer.{kind}")
        self._context.history.end(operation, answer)
        self._context.facts.answered(operation, answer)
        self.timestamp = max(self.timestamp, result.timestamp)
        if result.refusal == StaleEpoch.code:
            self._context.coverage.hit("writer.stale_epoch")
            self._epoch = self._context.history.epoch
        elif kind is AnswerKind.REFUSED and self._context.table.schema.version > self._schema.version:
            self._schema = self._context.table.schema
            self._core = self._new_core()

    def ended(self, outcome: _OutcomeWaiter, error: StelaeError) -> None:
        """Handle an operation that ended with an error. Whether it has an effect, now or later, is unknown."""
        self._open.discard(outcome)
        if isinstance(error, DeadlineExceeded):
            self._context.coverage.hit("writer.unknown")
        else:
            self._context.facts.report("no_exception", f"{self._name}: a write ends with {error!r}")

    def outcome_cancelled(self, outcome: _OutcomeWaiter) -> None:
        """Handle the cancellation of an operation."""
        self._open.discard(outcome)
        self._context.coverage.hit("writer.let_go")

    def _new_core(self) -> WriterCore:
        """Return a writer for the current schema, with a client id of its own."""
        self._writers += 1
        self._client = f"{self._name}-{self._writers}"
        members = sorted(self._gateway.node_ids, key=lambda _: self._core_rng.random())
        return WriterCore(
            self._messenger,
            LeaderTracker(members),
            tablet_id=TABLET,
            client_id=ClientId(self._client),
            schema_version=self._schema.version,
            rng=self._core_rng,
        )


class _OutcomeWaiter:
    """Receives the outcome of one operation, as a future does (``writer_core.Waiter``)."""

    def __init__(self, writer: WriterClient, operation: ClientOperation) -> None:
        self._writer = writer
        self._done = False
        self.operation = operation

    def done(self) -> bool:
        return self._done

    def set_result(self, result: OpResult, /) -> None:
        self._end()
        self._writer.answered(self, result)

    def set_exception(self, error: StelaeError, /) -> None:
        self._end()
        self._writer.ended(self, error)

    def cancel(self) -> None:
        """Cancel the operation if it has no outcome yet."""
        if not self._done:
            self._done = True
            self._writer.outcome_cancelled(self)

    def _end(self) -> None:
        if self._done:
            raise RuntimeError("an operation was given a second outcome")
        self._done = True
