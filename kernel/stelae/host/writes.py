"""Client writes of one replica, from request to answer.

What one turn brought in becomes one log entry (``batcher``). An entry that has been applied answers
its callers; one that was replaced, or whose fate this replica cannot learn, tells them to retry
under the same identity, which has one effect wherever it is retried."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from stelae.host.apply import EntryAnswers, other_version
from stelae.host.exactly_once_results import CLIENTS_MAX, ResultsTable
from stelae.host.ports import WriteBatcher
from stelae.spi.consensus import Proposal, Propose
from stelae.spi.errors import CallerError, ClockError, NotLeader, Overloaded, SchemaMismatch, StelaeError, Unavailable
from stelae.spi.ids import OpId
from stelae.spi.log import EntryKind
from stelae.spi.schema import Schema
from stelae.spi.write import Answer, OpResult, SequenceRange, WriteReply, WriteRequest, digests_of, refused

WriteDone: TypeAlias = Callable[[WriteReply | StelaeError], None]
_REPLACED = NotLeader(None, "the entry was replaced")


class _PendingRequest:
    """One request on its way; answered once, whole."""

    __slots__ = ("answers", "done", "open", "undecided")

    def __init__(self, done: WriteDone, operations: int) -> None:
        self.done = done
        self.answers: list[Answer] = []
        self.undecided = operations
        self.open = True

    def decide(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            self.answers.append(answer)
            self.undecided -= answer.count
        if not self.undecided and self.open:
            self.open = False
            self.done(WriteReply(self.answers))

    def fail(self, error: StelaeError) -> None:
        if self.open:
            self.open = False
            self.done(error)


class WritePath:
    """Pending writes of one replica, on the event loop. ``now`` gives hybrid timestamps."""

    def __init__(
        self, batcher: WriteBatcher, tokens: Iterator[int], results: ResultsTable, now: Callable[[], int]
    ) -> None:
        self._now = now
        self._batcher = batcher
        self._tokens = tokens
        self._results = results
        self._proposed: dict[int, Sequence[_PendingRequest]] = {}
        self._waiting: dict[int, tuple[OpId, Sequence[_PendingRequest]]] = {}
        self._changes: list[Proposal] = []

    @property
    def pending(self) -> int:
        """Entries proposed or in the log whose callers have no answer yet."""
        return len(self._proposed) + len(self._waiting)

    def add(self, request: WriteRequest, done: WriteDone) -> None:
        """Take the operations of a request for this turn's entry.

        One that was applied before gets its first answer at once, also when the schema has changed
        since. One that cannot be taken as a whole is refused in the reply; the others stand.

        A refusal is final: rows of an older schema version than the one applied here have no effect later either
        (``ApplyGroup``). Rows of a newer version may be in the log already, behind a change that is not applied here
        yet, so they get ``Unavailable``."""
        if not request.sequences:
            done(CallerError("a write request without operations"))
            return
        if request.schema_version > self._batcher.schema.version:
            done(self._behind(request.schema_version))
            return
        try:
            if not self._results.has_room_for(request.client_id, self._now):
                raise Overloaded(f"{CLIENTS_MAX} clients wrote here in ten minutes; let one write more, or wait")
        except (ClockError, Overloaded) as error:
            done(error if isinstance(error, Overloaded) else Unavailable(str(error)))
            return
        pending = _PendingRequest(done, sum(len(run.ops) for run in request.sequences))
        for run in request.sequences:
            self._take(request, run, digests_of(run), pending)

    def _take(
        self, request: WriteRequest, run: SequenceRange, digests: tuple[int, ...], pending: _PendingRequest
    ) -> None:
        """Take a run whole; or, if some of it is known or unfit, operation by operation."""
        client_id, first, count = request.client_id, run.first_sequence, len(digests)
        alone = count == 1
        answer = self._results.answer(client_id, first, digests[0]) if alone else None
        if answer is None and (alone or not self._results.knows(client_id, range(first, first + count))):
            if (refusal := other_version(request.schema_version, self._batcher.schema)) is not None:
                pending.decide([Answer(first, count, refusal)])
                return
            try:
                self._batcher.add(client_id, request.first_incomplete, run, digests, pending)
                return
            except SchemaMismatch as error:  # of what its operations share
                pending.decide([Answer(first, count, refused(error))])
                return
            except CallerError as error:
                answer = refused(error)
        if alone and answer is not None:
            pending.decide([Answer(first, 1, answer)])
            return
        for place, op in enumerate(run.ops):
            one = SequenceRange(first + place, run.kind, run.columns, [op])
            self._take(request, one, digests[place : place + 1], pending)

    def _behind(self, version: int) -> Unavailable:
        known = self._batcher.schema.version
        return Unavailable(f"schema version {version} is asked for; this leader has applied version {known} so far")

    def change_schema(self, schema: Schema, done: WriteDone) -> None:
        """Propose the next schema; ``done`` as for writes. One that is in force already is answered at once; one that
        follows a version which is not applied here yet gets ``Unavailable``."""
        if schema.version > self._batcher.schema.version + 1:
            done(self._behind(schema.version - 1))
            return
        pending = _PendingRequest(done, 1)
        try:
            if schema != self._batcher.schema:
                self._batcher.check_change(schema)
                self._proposed[token := next(self._tokens)] = [pending]
                self._changes.append(Proposal(token, EntryKind.SCHEMA, schema.to_bytes()))
                return
            pending.decide([Answer(0, 1, OpResult(self._now()))])
        except SchemaMismatch as error:
            pending.decide([Answer(0, 1, refused(error))])
        except ClockError as error:
            pending.fail(Unavailable(str(error)))

    def schema_changed(self, schema: Schema) -> None:
        """Rows are checked against ``schema`` from now on: it was applied."""
        self._batcher.change_schema(schema)

    def take_proposals(self) -> Propose | None:
        """Return what this turn brought in as proposals, or ``None`` if there is nothing."""
        if not len(self._batcher) and not self._changes:
            return None
        proposals, self._changes = self._changes, []
        for body, owners in self._batcher.build():
            token = next(self._tokens)
            self._proposed[token] = owners
            proposals.append(Proposal(token, EntryKind.WRITE, body))
        return Propose(tuple(proposals))

    def accepted(self, token: int, op_id: OpId) -> None:
        """A proposal is in the log at ``op_id``."""
        owners = self._proposed.pop(token, None)
        if owners is not None:
            self.replaced(op_id.index, _REPLACED)
            self._waiting[op_id.index] = (op_id, owners)

    def rejected(self, token: int, error: StelaeError) -> None:
        """A proposal was not taken."""
        for owner in self._proposed.pop(token, ()):
            owner.fail(error)

    def replaced(self, from_index: int, error: StelaeError) -> None:
        """Entries at or above an index are not in this log any more; others may still hold them."""
        for index in [index for index in self._waiting if index >= from_index]:
            for owner in self._waiting.pop(index)[1]:
                owner.fail(error)

    def answered(self, applied: EntryAnswers) -> None:
        """An entry has been applied: its callers get their answers."""
        op_id, owners = self._waiting.pop(applied.op_id.index, (None, ()))
        if op_id != applied.op_id:
            for owner in owners:
                owner.fail(_REPLACED)
            return
        for owner, answers in zip(owners, applied.answers, strict=True):
            owner.decide(answers)

    def fail_all(self, error: StelaeError) -> None:
        """Tell every caller to retry elsewhere."""
        for owners in list(self._proposed.values()):
            for owner in owners:
                owner.fail(error)
        self._proposed.clear()
        self._changes.clear()
        self.replaced(0, error)
