"""The client writes of one replica, from the request to the answer.

The operations of one turn become one log entry (``WriteBatcher``). When the entry has been applied, its callers get
their answers. If the entry was replaced, or this replica cannot learn its outcome, its callers get an error. They
retry with the same client id and sequence numbers, so that the write has one effect wherever it is retried."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from stelae.host.apply import EntryAnswers, other_version
from stelae.host.exactly_once_results import CLIENTS_MAX, ResultsTable
from stelae.host.ports import WriteBatcher
from stelae.host.source_epochs import SOURCES_MAX
from stelae.spi.consensus_events import Proposal, Propose
from stelae.spi.errors import CallerError, ClockError, NotLeader, Overloaded, SchemaMismatch, StelaeError, Unavailable
from stelae.spi.ids import OpId
from stelae.spi.log import EntryKind
from stelae.spi.schema import Schema
from stelae.spi.write import Answer, OpResult, SequenceRange, WriteReply, WriteRequest, digests_of, refused

WriteDone: TypeAlias = Callable[[WriteReply | StelaeError], None]
_REPLACED = NotLeader(None, "the entry was replaced")


class _PendingRequest:
    """One request that waits for its answer. It gets one reply, when all of its operations are decided, or an error."""

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
    """The writes of one replica that have no answer yet, on the event loop. ``now`` returns hybrid timestamps."""

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
        """The number of entries that are proposed or in the log and whose callers have no answer yet."""
        return len(self._proposed) + len(self._waiting)

    def add(self, request: WriteRequest, done: WriteDone) -> None:
        """Add the operations of a request to the entry of this turn.

        An operation that was applied before gets its first answer at once, even if the schema has changed since. An
        operation that cannot be accepted is refused in the reply; this does not affect the other operations.

        A refusal is final: rows for an older schema version than the one applied here can have no effect later
        (``ApplyGroup``). Rows for a newer version may already be in the log, after a schema change that is not applied
        here yet. So they get ``Unavailable``."""
        if not request.sequences:
            done(CallerError("the write request has no operations"))
            return
        if request.schema_version > self._batcher.schema.version:
            done(self._behind(request.schema_version))
            return
        try:
            if not self._results.has_room_for(request.client_id, self._now):
                fact = f"{CLIENTS_MAX} clients have written to this tablet in ten minutes"
                raise Overloaded(f"{fact}; wait, or write with fewer clients")
            if not self._results.sources.have_room_for([sequences.fence for sequences in request.sequences], self._now):
                fact = f"{SOURCES_MAX} sources have written to this tablet in seven days"
                raise Overloaded(f"{fact}; wait, or give the epochs of a source one name")
        except (ClockError, Overloaded) as error:
            done(error if isinstance(error, Overloaded) else Unavailable(str(error)))
            return
        pending = _PendingRequest(done, sum(len(sequences.ops) for sequences in request.sequences))
        for sequences in request.sequences:
            self._take(request, sequences, digests_of(sequences), pending)

    def _take(
        self, request: WriteRequest, sequences: SequenceRange, digests: tuple[int, ...], pending: _PendingRequest
    ) -> None:
        """Add a sequence range as a whole. If some of its operations are known or do not fit, add them one by one."""
        client_id, first, count = request.client_id, sequences.first_sequence, len(digests)
        alone = count == 1
        answer = self._results.answer(client_id, first, digests[0]) if alone else None
        known = self._results.knows(client_id, range(first, first + count))
        if answer is None and (alone or not known):
            refusal = other_version(request.schema_version, self._batcher.schema)
            refusal = refusal or self._results.sources.refusal(sequences.fence)
            # An operation that is known and has no answer is being applied. Its answer comes with its entry.
            if refusal is not None and not known:
                pending.decide([Answer(first, count, refusal)])
                return
            try:
                self._batcher.add(client_id, request.first_incomplete, sequences, digests, pending)
                return
            except SchemaMismatch as error:  # of what its operations share
                pending.decide([Answer(first, count, refused(error))])
                return
            except CallerError as error:
                answer = refused(error)
        if alone and answer is not None:
            pending.decide([Answer(first, 1, answer)])
            return
        for place, op in enumerate(sequences.ops):
            one = SequenceRange(first + place, sequences.kind, sequences.columns, [op], sequences.fence)
            self._take(request, one, digests[place : place + 1], pending)

    def _behind(self, version: int) -> Unavailable:
        known = self._batcher.schema.version
        fact = f"the request is for schema version {version}"
        return Unavailable(f"{fact}; this leader has applied version {known} so far")

    def change_schema(self, schema: Schema, done: WriteDone) -> None:
        """Propose the next schema. ``done`` is called as for writes.

        A schema that is already in force is answered at once. A schema that follows a version which is not applied here
        yet gets ``Unavailable``."""
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
        """Check rows against ``schema`` from now on, because it was applied."""
        self._batcher.change_schema(schema)

    def take_proposals(self) -> Propose | None:
        """Return the proposals of this turn, or ``None`` if there are none."""
        if not len(self._batcher) and not self._changes:
            return None
        proposals, self._changes = self._changes, []
        for body, owners in self._batcher.build():
            token = next(self._tokens)
            self._proposed[token] = owners
            proposals.append(Proposal(token, EntryKind.WRITE, body))
        return Propose(tuple(proposals))

    def accepted(self, token: int, op_id: OpId) -> None:
        """Note that a proposal is in the log at ``op_id``."""
        owners = self._proposed.pop(token, None)
        if owners is not None:
            self.replaced(op_id.index, _REPLACED)
            self._waiting[op_id.index] = (op_id, owners)

    def rejected(self, token: int, error: StelaeError) -> None:
        """Fail the requests of a rejected proposal."""
        for owner in self._proposed.pop(token, ()):
            owner.fail(error)

    def replaced(self, from_index: int, error: StelaeError) -> None:
        """Fail the requests of the entries at or above an index, which are no longer in this replica's log.

        Other replicas may still have these entries."""
        for index in [index for index in self._waiting if index >= from_index]:
            for owner in self._waiting.pop(index)[1]:
                owner.fail(error)

    def answered(self, applied: EntryAnswers) -> None:
        """Answer the requests of an entry that has been applied."""
        op_id, owners = self._waiting.pop(applied.op_id.index, (None, ()))
        if op_id != applied.op_id:
            for owner in owners:
                owner.fail(_REPLACED)
            return
        for owner, answers in zip(owners, applied.answers, strict=True):
            owner.decide(answers)

    def fail_all(self, error: StelaeError) -> None:
        """Fail all requests, also those that no turn has proposed yet."""
        for _, owners in self._batcher.build() if len(self._batcher) else ():
            for owner in owners:
                owner.fail(error)
        for owners in list(self._proposed.values()):
            for owner in owners:
                owner.fail(error)
        self._proposed.clear()
        self._changes.clear()
        self.replaced(0, error)
