"""Exactly-once results: the answers that each client's operations got, for each tablet.

The table is a pure function of the entries that were applied so far. It reads no clock, its results expire only by the
timestamps of entries, and it has no settings. So the tables of all replicas are equal, any later leader gives a retry
the first answer, and equal tables are encoded as equal bytes (``durability.md`` rule 16, behaviour C17).

A group of entries is applied in three steps::

    admissions = [table.admit(payload, timestamp) for ...]     # in log order
    results = store.apply([... skip=admission.skip ...])
    answers = [table.record(admission, result.faults) for ...]

Between ``admit`` and ``record`` an operation is admitted but has no result yet. If a later entry of the same group has
the same operation, it is a duplicate, and gets the same result as soon as there is one."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice
from typing import Self, TypeAlias

import msgspec

from stelae.host.hybrid_clock import LOGICAL_BITS
from stelae.host.source_epochs import SourceEpochs
from stelae.spi.errors import Corrupt, PayloadMismatch, PluginError
from stelae.spi.ids import ClientId, SourceId
from stelae.spi.payload import PayloadSequenceRange, WritePayload
from stelae.spi.store import RowFault
from stelae.spi.write import Answer, OpResult, RowError, StaleSequence, refused

_SECOND = 1_000_000 << LOGICAL_BITS

# These are not settings: a replica that forgets results earlier than its peers would apply what they skip.
RESULT_AGE_MAX = 600 * _SECOND  #: How long a result is kept. No client retries for longer.
CLIENT_AGE_MAX = 3600 * _SECOND  #: How long a client without new writes is remembered.
RESULTS_PER_CLIENT_MAX = 65_536  #: The most results of a client, which may never raise ``first_incomplete``.
CLIENTS_MAX = 100_000  #: Above it, a new client is refused until a client has not written for ``RESULT_AGE_MAX``.

_DUMP_VERSION = 1


class _AdmittedOperation(msgspec.Struct, array_like=True, gc=False):
    """One operation that was admitted."""

    digest: int
    timestamp: int  #: The timestamp of its entry.
    result: OpResult | None = None  #: ``None`` until its entry is recorded.


class _ClientResults(msgspec.Struct):
    """The operations of one client."""

    timestamp: int  #: Of the client's last entry.
    first_incomplete: int = 1
    #: An operation with a lower sequence number and without a result is stale: it was answered, or its result expired.
    floor: int = 1
    expire_from: int = 0  #: No result expires before this timestamp.
    #: By sequence number, in order of timestamp. None is below ``first_incomplete``.
    results: dict[int, _AdmittedOperation] = {}

    def knows(self, sequences: range) -> bool:
        """Return whether any of these sequence numbers has a result or may be stale."""
        return sequences.start < self.floor or not self.results.keys().isdisjoint(sequences)

    def prune(self, first_incomplete: int) -> None:
        """Remove the results that the client has seen: all below ``first_incomplete``."""
        gap = first_incomplete - self.first_incomplete
        if gap <= 0:
            return
        if gap <= 64 + 2 * len(self.results):
            for sequence in range(self.first_incomplete, first_incomplete):
                self.results.pop(sequence, None)
        else:
            self.results = {s: k for s, k in self.results.items() if s >= first_incomplete}
        self.first_incomplete = first_incomplete
        self.floor = max(self.floor, first_incomplete)

    def expire(self, now: int) -> None:
        """Remove the results that are older than ``RESULT_AGE_MAX`` at entry timestamp ``now``."""
        if now < self.expire_from:
            return
        self.remove([s for s, k in self.results.items() if k.timestamp + RESULT_AGE_MAX < now])
        oldest = next(iter(self.results.values()), None)
        # No result expires earlier than this, so entries before it need not search for expired results.
        self.expire_from = (oldest.timestamp if oldest else now) + RESULT_AGE_MAX

    def remove(self, sequences: Sequence[int]) -> None:
        """Remove results before the client has confirmed them. Their operations are stale from now on."""
        for sequence in sequences:
            del self.results[sequence]
            self.floor = max(self.floor, sequence + 1)


class Admission(msgspec.Struct):
    """The result of :meth:`ResultsTable.admit` for one entry."""

    sequences: tuple[PayloadSequenceRange, ...]
    timestamp: int
    skip: frozenset[int]  #: Numbers of the payload's operations that the store must ignore.
    operations: list[_AdmittedOperation]  #: All operations of the payload, in order.


class ResultsTable:
    """The results of one tablet. Its methods are called one at a time, and ``admit`` in log order."""

    def __init__(self) -> None:
        self._clients: OrderedDict[ClientId, _ClientResults] = OrderedDict()
        self._open = 0
        self.sources = SourceEpochs()
        """The epochs of sources, which :meth:`admit` raises."""

    def answer(self, client_id: ClientId, sequence: int, digest: int) -> OpResult | None:
        """Return the answer to an operation that needs no new entry, or ``None`` if it must be proposed (again).

        The answer is the first answer of the operation, or the refusal that ``admit`` would give."""
        client = self._clients.get(client_id)
        if client is None:
            return None
        operation = client.results.get(sequence)
        if operation is None:
            return _stale(client, sequence) if sequence < client.floor else None
        return operation.result if operation.digest == digest else _mismatch(client_id, sequence)

    def knows(self, client_id: ClientId, sequences: range) -> bool:
        """Return whether ``answer`` may return an answer for any of these sequence numbers. Cheap for many of them."""
        client = self._clients.get(client_id)
        return client is not None and client.knows(sequences)

    def has_room_for(self, client_id: ClientId, now: Callable[[], int]) -> bool:
        """Return whether a leader may accept a request of this client.

        A new client is refused if it could only be admitted by forgetting a client that may still retry."""
        if len(self._clients) < CLIENTS_MAX or client_id in self._clients:
            return True
        return next(iter(self._clients.values())).timestamp + RESULT_AGE_MAX < now()

    def admit(self, payload: WritePayload, timestamp: int, version_refusal: OpResult | None = None) -> Admission:
        """Admit the operations of the next entry, and decide which of them must not be applied.

        Not applied are retries of operations that were admitted before, other operations with the id of one that was
        admitted before, stale operations, and operations of an epoch that is over. With a ``version_refusal`` no
        operation is admitted: those that were not admitted before get this answer, and are not remembered. ``record``
        must be called for each admission, in order."""
        owners = [self._touch(c.client_id, c.first_incomplete, timestamp) for c in payload.clients]
        skip: list[int] = []
        operations: list[_AdmittedOperation] = []
        for found in payload.sequences:
            client = owners[found.client]
            sequences = range(found.first_sequence, found.first_sequence + len(found.digests))
            refusal = version_refusal
            if refusal is None and found.fence is not None:
                refusal = self.sources.admit(found.fence, timestamp)
            if refusal is None and not client.knows(sequences):
                new = [_AdmittedOperation(digest, timestamp) for digest in found.digests]
                client.results.update(zip(sequences, new, strict=True))
                operations += new
                continue
            for sequence, digest in zip(sequences, found.digests, strict=True):
                operation = client.results.get(sequence)
                if refusal is None and operation is None and sequence >= client.floor:
                    operation = client.results[sequence] = _AdmittedOperation(digest, timestamp)
                else:
                    skip.append(len(operations))
                    if operation is None:
                        stale = sequence < client.floor
                        operation = _AdmittedOperation(0, timestamp, _stale(client, sequence) if stale else refusal)
                    elif operation.digest != digest:
                        client_id = payload.clients[found.client].client_id
                        operation = _AdmittedOperation(0, timestamp, _mismatch(client_id, sequence))
                operations.append(operation)
        for client in owners:
            if len(client.results) > RESULTS_PER_CLIENT_MAX:
                client.remove([*islice(client.results, RESULTS_PER_CLIENT_MAX // 4)])
        self._open += 1
        return Admission(payload.sequences, timestamp, frozenset(skip), operations)

    def record(self, admission: Admission, faults: Iterable[RowFault]) -> list[list[Answer]]:
        """Store the results of an applied entry. Return the answers of each of its sequence ranges, in order."""
        self._open -= 1
        fine = OpResult(admission.timestamp)
        found = _by_operation(admission.sequences, faults)
        if not found and not admission.skip:
            for operation in admission.operations:
                operation.result = fine
            return [
                [Answer(sequences.first_sequence, len(sequences.digests), fine)] for sequences in admission.sequences
            ]
        for number, operation in enumerate(admission.operations):
            if operation.result is None:
                operation.result = OpResult(fine.timestamp, tuple(found[number])) if number in found else fine
        waiting = (operation.result or fine for operation in admission.operations)
        return [
            _answers(sequences.first_sequence, islice(waiting, len(sequences.digests)))
            for sequences in admission.sequences
        ]

    def dump(self) -> bytes:
        """Encode the table, for the superblock. Every admission must be recorded."""
        if self._open:
            raise RuntimeError(f"{self._open} admissions of the results table are not recorded yet")
        clients = [(name, c.timestamp, c.first_incomplete, c.floor, c.results) for name, c in self._clients.items()]
        return _ENCODER.encode((_DUMP_VERSION, clients, self.sources.dump()))

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Decode the bytes of :meth:`dump`; no bytes give an empty table.

        Raises ``Corrupt`` if the bytes are not a table of a known version."""
        table = cls()
        if not data:
            return table
        try:
            version, clients, sources = _DECODER.decode(data)
        except (ValueError, RecursionError) as error:
            raise Corrupt(f"not a results table: {error}") from error
        if version != _DUMP_VERSION:
            raise Corrupt(f"results table of version {version}; known: {_DUMP_VERSION}")
        for name, timestamp, first_incomplete, floor, results in clients:
            table._clients[name] = _ClientResults(timestamp, first_incomplete, floor, 0, results)
        table.sources = SourceEpochs.load(sources)
        return table

    def _touch(self, client_id: ClientId, first_incomplete: int, now: int) -> _ClientResults:
        client = self._clients.setdefault(client_id, _ClientResults(now))
        self._clients.move_to_end(client_id)
        client.timestamp = now
        client.expire(now)
        client.prune(first_incomplete)
        while True:
            silent_longest, oldest = next(iter(self._clients.items()))
            if oldest.timestamp + (RESULT_AGE_MAX if len(self._clients) > CLIENTS_MAX else CLIENT_AGE_MAX) >= now:
                return client
            del self._clients[silent_longest]


def _mismatch(client_id: ClientId, sequence: int) -> OpResult:
    return refused(
        PayloadMismatch(
            f"client {client_id} used sequence number {sequence} for another operation before; "
            "nothing was applied; give each operation its own number"
        )
    )


def _stale(client: _ClientResults, sequence: int) -> OpResult:
    return refused(
        StaleSequence(
            f"sequence number {sequence} is below {client.floor}: the operation was answered, or its result has "
            "expired; nothing was applied now; read the rows to learn their state"
        )
    )


def _answers(sequence: int, results: Iterable[OpResult]) -> list[Answer]:
    """Return the answers for the results of consecutive operations. Neighbours with the same result share an answer."""
    answers = []
    for _, same in groupby(results, key=id):
        shared = [*same]
        answers.append(Answer(sequence, len(shared), shared[0]))
        sequence += len(shared)
    return answers


def _by_operation(ranges: tuple[PayloadSequenceRange, ...], faults: Iterable[RowFault]) -> dict[int, list[RowError]]:
    """Return the row errors of each operation, by its number in the payload.

    They are the store's faults, which are in row order, and the errors that the leader found."""
    found: dict[int, list[RowError]] = {}
    waiting = deque(faults)
    number = row = 0
    for sequences in ranges if waiting or any(one.errors for one in ranges) else ():
        unfit: dict[int, list[RowError]] = {}
        for place, error in sequences.errors:
            unfit.setdefault(place, []).append(error)
        for place, count in enumerate(sequences.row_counts):
            errors, met, before = unfit.get(place, []), [], 0
            while waiting and row <= waiting[0].row < row + count:
                fault = waiting.popleft()
                # The owned rows are what was sent without the rows that did not fit the schema.
                while before < len(errors) and errors[before].row <= fault.row - row + before:
                    before += 1
                met.append(RowError(fault.row - row + before, fault.code))
            if errors or met:
                found[number] = sorted((*errors, *met), key=lambda error: error.row)
            number, row = number + 1, row + count
    if waiting:
        raise PluginError(f"the store reported {waiting[0]}, which is out of order or not a row of the entry")
    return found


_ENCODER = msgspec.msgpack.Encoder()
_Clients: TypeAlias = list[tuple[ClientId, int, int, int, dict[int, _AdmittedOperation]]]
_DECODER = msgspec.msgpack.Decoder(tuple[int, _Clients, list[tuple[SourceId, int, int]]])
