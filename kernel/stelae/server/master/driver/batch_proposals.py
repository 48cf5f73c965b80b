"""Proposes the batches of a master to the system tablet, and reports the outcome of each.

A batch is proposed in a turn of its own, so that it has a log entry of its own. It is committed when its entry is
applied: an answer of the write path says less. An error of the write path after the batch was handed over leaves the
outcome unknown, since other replicas may have the entry (``durability.md`` rule 26). The exception is a proposal that
the consensus core did not take, as during a transfer of leadership: it is in no log. An outcome that is unknown holds
the locks of its batch for as long as this master leads, so it is not reported without need."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from stelae.host.ports import Turns
from stelae.host.rejection_errors import NotProposed
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.server.master.core.batches import SYSTEM_SCHEMA, CatalogBatch, from_rows, to_rows
from stelae.server.master.core.events import Decided, Replicate
from stelae.server.master.core.operations import BatchOutcome
from stelae.server.master.driver.ports import SystemReplica
from stelae.spi.consensus import Role, Status
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ClientId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.payload import WritePayload, decode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.write import WriteReply, WriteRequest


class BatchProposals:
    """The batches of one run of a master.

    Args:
        client_id: of this run of the master; entries with it are its own.
        decided: takes each outcome.
    """

    def __init__(self, turns: Turns, client_id: ClientId, decided: Callable[[Decided], None]) -> None:
        self._turns = turns
        self._client_id = client_id
        self._decided = decided
        self._queue: deque[tuple[Replicate, SystemReplica]] = deque()
        self._undecided: dict[int, int] = {}  #: The token of each batch that was handed over, by its sequence.
        self._last_sequence = 0
        self._stopped = False

    def stop(self) -> None:
        """Stop proposing."""
        self._stopped = True

    def add(self, effect: Replicate, replica: SystemReplica) -> None:
        """Propose a batch behind those that wait."""
        self._queue.append((effect, replica))
        if len(self._queue) == 1:
            self._turns.defer(self._propose_next)

    def applied(self, entry: Entry) -> tuple[CatalogBatch | None, list[Decided]]:
        """Return the batch of an applied entry, if it has rows, and what the entry decides."""
        if entry.kind is not EntryKind.WRITE:
            return None, []
        payload = decode_payload(entry.body)
        tokens = [self._undecided.pop(sequence, None) for sequence in self._own_sequences(payload)]
        decided = [Decided(token, BatchOutcome.COMMITTED, entry.op_id) for token in tokens if token is not None]
        return batch_in(payload), decided

    def _own_sequences(self, payload: WritePayload) -> list[int]:
        clients, own = payload.clients, self._client_id
        return [run.first_sequence for run in payload.sequences if clients[run.client].client_id == own]

    def _propose_next(self) -> None:
        """Propose the next batch; the one behind it waits for the next turn."""
        effect, replica = self._queue.popleft()
        if self._queue:
            self._turns.call_at(self._turns.now_us(), self._propose_next)
        if self._stopped:
            return
        if not may_propose(replica.status, effect.term):
            reason = f"this master does not lead any more in term {effect.term}, in which it was planned"
            self._decided(Decided(effect.token, BatchOutcome.CERTAINLY_NOT, reason=reason))
            return
        self._hand_over(effect, replica)

    def _hand_over(self, effect: Replicate, replica: SystemReplica) -> None:
        self._last_sequence = sequence = self._last_sequence + 1
        self._undecided[sequence] = effect.token
        at_once = True

        def done(result: WriteReply | StelaeError) -> None:
            outcome = outcome_of(result, at_once=at_once)
            token = None if outcome is None else self._undecided.pop(sequence, None)
            if outcome is not None and token is not None:
                self._decided(Decided(token, outcome, reason=reason_of(result)))

        kind, rows = to_rows(effect.batch)
        request = WriteRequest(
            SYSTEM_TABLET,
            self._client_id,
            min(self._undecided),
            SYSTEM_SCHEMA.version,
            sequence_ranges_of([(sequence, operation(kind, rows.to_ipc()))]),
        )
        replica.write(request, done)
        at_once = False


def may_propose(status: Status, term: int) -> bool:
    """Whether a batch that was planned in ``term`` may be proposed: this replica still leads in that term."""
    return status.role is Role.LEADER and status.term == term


def outcome_of(result: WriteReply | StelaeError, *, at_once: bool) -> BatchOutcome | None:
    """Return the outcome of a batch according to the write path; ``None``: the applied entry has already decided it.

    Args:
        at_once: the answer came while the batch was handed over, so nothing of it was proposed.
    """
    if isinstance(result, StelaeError):
        return BatchOutcome.CERTAINLY_NOT if at_once or isinstance(result, NotProposed) else BatchOutcome.UNKNOWN
    refused = any(answer.result.refusal for answer in result.answers)
    return BatchOutcome.CERTAINLY_NOT if refused else None


def reason_of(result: WriteReply | StelaeError) -> str:
    """Return why an answer of the write path does not say that a batch is committed."""
    if isinstance(result, StelaeError):
        return str(result) or result.code
    return "; ".join(f"{one.result.refusal}: {one.result.detail}" for one in result.answers if one.result.refusal)


def batch_in(payload: WritePayload) -> CatalogBatch | None:
    """Return the batch of an entry of the system tablet, or ``None`` if it has no rows."""
    batches = [
        from_rows(group.kind, RowBatch.from_ipc(SYSTEM_SCHEMA.project(group.columns), group.body))
        for group in payload.groups
    ]
    assert len(batches) <= 1, f"an entry of the system tablet has {len(batches)} operations"
    return batches[0] if batches else None
