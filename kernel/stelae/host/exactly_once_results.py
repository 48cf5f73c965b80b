"""Exactly-once results: what each client has been answered, kept per tablet by the kernel.

The table is a pure function of the entries applied so far, in order: it reads no clock, expires by
the timestamps of entries alone, and has no settings. So all replicas hold equal tables, whoever
leads next gives the first answer to a retry, and equal tables dump to equal bytes (``durability``
rule 16, behaviour C17).

Applying a group of entries goes::

    admissions = [table.admit(payload, timestamp) for ...]     # in log order
    results = store.apply([... skip=admission.skip ...])
    answers = [table.record(admission, result.faults) for ...]

Between ``admit`` and ``record`` an operation counts as taken but has no answer yet: a second entry of
the same id in the same group is a duplicate, and shares the answer once there is one."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, islice
from typing import Self

import msgspec

from stelae.host.hybrid_clock import LOGICAL_BITS
from stelae.spi.errors import Corrupt, PayloadMismatch, PluginError
from stelae.spi.ids import ClientId
from stelae.spi.payload import PayloadSequenceRange, WritePayload
from stelae.spi.store import RowFault
from stelae.spi.write import Answer, OpResult, RowError, StaleSequence, refused

_SECOND = 1_000_000 << LOGICAL_BITS

# No settings: a replica that forgot earlier than its peers would apply what they skip.
RESULT_AGE_MAX = 600 * _SECOND  #: How long a result is kept; no client retries for longer.
CLIENT_AGE_MAX = 3600 * _SECOND  #: How long a silent client is remembered.
RESULTS_PER_CLIENT_MAX = 65_536  #: For a client that never says what it has seen.
CLIENTS_MAX = 100_000  #: Beyond it new clients wait until one has been silent for ``RESULT_AGE_MAX``.

_DUMP_VERSION = 1


class _TakenOperation(msgspec.Struct, array_like=True, gc=False):
    """One operation that was taken; ``result`` is ``None`` until its entry has been recorded."""

    digest: int
    timestamp: int
    result: OpResult | None = None


class _ClientResults(msgspec.Struct):
    """What is remembered of one client.

    ``results`` are in order of timestamp, none below ``first_incomplete``. A sequence below
    ``floor`` that has no result is stale: it was answered, or its result was let go."""

    timestamp: int
    first_incomplete: int = 1
    floor: int = 1
    expire_from: int = 0
    results: dict[int, _TakenOperation] = {}

    def knows(self, sequences: range) -> bool:
        return sequences.start < self.floor or not self.results.keys().isdisjoint(sequences)

    def prune(self, first_incomplete: int) -> None:
        """Let go of results that the client has seen: all below ``first_incomplete``."""
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
        """Let go of results older than ``RESULT_AGE_MAX`` at entry timestamp ``now``."""
        if now < self.expire_from:
            return
        self.let_go([s for s, k in self.results.items() if k.timestamp + RESULT_AGE_MAX < now])
        oldest = next(iter(self.results.values()), None)
        # Nothing can expire earlier than this, so entries until then need not look.
        self.expire_from = (oldest.timestamp if oldest else now) + RESULT_AGE_MAX

    def let_go(self, sequences: Sequence[int]) -> None:
        for sequence in sequences:
            del self.results[sequence]
            self.floor = max(self.floor, sequence + 1)


class Admission(msgspec.Struct):
    """What :meth:`ResultsTable.admit` found. ``skip`` numbers the operations that the store passes over."""

    sequences: tuple[PayloadSequenceRange, ...]
    timestamp: int
    skip: frozenset[int]
    kept: list[_TakenOperation]


class ResultsTable:
    """All results of one tablet. Calls are made one at a time, ``admit`` in log order."""

    def __init__(self) -> None:
        self._clients: OrderedDict[ClientId, _ClientResults] = OrderedDict()
        self._open = 0

    def answer(self, client_id: ClientId, sequence: int, digest: int) -> OpResult | None:
        """Return what a leader can answer without the log; ``None``: propose it (again). A hit is the first answer, or
        the refusal that ``admit`` would give."""
        client = self._clients.get(client_id)
        if client is None:
            return None
        kept = client.results.get(sequence)
        if kept is None:
            return _stale(client, sequence) if sequence < client.floor else None
        return kept.result if kept.digest == digest else _mismatch(client_id, sequence)

    def knows(self, client_id: ClientId, sequences: range) -> bool:
        """Whether ``answer`` may have something to say of one of these; cheap for many."""
        client = self._clients.get(client_id)
        return client is not None and client.knows(sequences)

    def has_room_for(self, client_id: ClientId, now: Callable[[], int]) -> bool:
        """Whether a leader may take a request: a client that may still retry is not forgotten for a new one."""
        if len(self._clients) < CLIENTS_MAX or client_id in self._clients:
            return True
        return next(iter(self._clients.values())).timestamp + RESULT_AGE_MAX < now()

    def admit(self, payload: WritePayload, timestamp: int, refusal: OpResult | None = None) -> Admission:
        """Take the operations of the next entry: say which of them must not be applied.

        Those are retries of what was taken before, other uses of a taken id, and operations whose
        client has moved past them. With a ``refusal`` nothing is taken: what was not taken before gets this answer,
        and is not remembered. ``record`` must follow for each admission, in order."""
        owners = [self._touch(c.client_id, c.first_incomplete, timestamp) for c in payload.clients]
        skip: list[int] = []
        all_kept: list[_TakenOperation] = []
        for run in payload.sequences:
            client = owners[run.client]
            sequences = range(run.first_sequence, run.first_sequence + len(run.digests))
            if refusal is None and not client.knows(sequences):
                new = [_TakenOperation(digest, timestamp) for digest in run.digests]
                client.results.update(zip(sequences, new, strict=True))
                all_kept += new
                continue
            for sequence, digest in zip(sequences, run.digests, strict=True):
                kept = client.results.get(sequence)
                if refusal is None and kept is None and sequence >= client.floor:
                    kept = client.results[sequence] = _TakenOperation(digest, timestamp)
                else:
                    skip.append(len(all_kept))
                    if kept is None:
                        stale = sequence < client.floor
                        kept = _TakenOperation(0, timestamp, _stale(client, sequence) if stale else refusal)
                    elif kept.digest != digest:
                        client_id = payload.clients[run.client].client_id
                        kept = _TakenOperation(0, timestamp, _mismatch(client_id, sequence))
                all_kept.append(kept)
        for client in owners:
            if len(client.results) > RESULTS_PER_CLIENT_MAX:
                client.let_go([*islice(client.results, RESULTS_PER_CLIENT_MAX // 4)])
        self._open += 1
        return Admission(payload.sequences, timestamp, frozenset(skip), all_kept)

    def record(self, admission: Admission, faults: Iterable[RowFault]) -> list[list[Answer]]:
        """Keep what applying the entry gave, and return the answers of each of its runs, in order."""
        self._open -= 1
        fine = OpResult(admission.timestamp)
        found = _by_operation(admission.sequences, faults)
        if not found and not admission.skip:
            for kept in admission.kept:
                kept.result = fine
            return [[Answer(run.first_sequence, len(run.digests), fine)] for run in admission.sequences]
        for number, kept in enumerate(admission.kept):
            if kept.result is None:
                kept.result = OpResult(fine.timestamp, tuple(found[number])) if number in found else fine
        waiting = (kept.result or fine for kept in admission.kept)
        return [_answers(run.first_sequence, islice(waiting, len(run.digests))) for run in admission.sequences]

    def dump(self) -> bytes:
        """Return the table as bytes, for the superblock. Every admission must be recorded."""
        if self._open:
            raise RuntimeError(f"{self._open} admissions of a results table are not recorded yet")
        clients = [(name, c.timestamp, c.first_incomplete, c.floor, c.results) for name, c in self._clients.items()]
        return _ENCODER.encode((_DUMP_VERSION, clients))

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read what :meth:`dump` wrote, or nothing; ``Corrupt``: no dump of a known version."""
        table = cls()
        if not data:
            return table
        try:
            version, clients = _DECODER.decode(data)
        except (ValueError, RecursionError) as error:
            raise Corrupt(f"not a results table: {error}") from error
        if version != _DUMP_VERSION:
            raise Corrupt(f"results table of version {version}; known: {_DUMP_VERSION}")
        for name, timestamp, first_incomplete, floor, results in clients:
            table._clients[name] = _ClientResults(timestamp, first_incomplete, floor, 0, results)
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
            f"client {client_id} used sequence {sequence} for another request before: "
            "nothing was applied; give each operation a number of its own"
        )
    )


def _stale(client: _ClientResults, sequence: int) -> OpResult:
    return refused(
        StaleSequence(
            f"sequence {sequence} is below {client.floor}: it was answered, or its result is not "
            "kept any more; nothing was applied now; read the rows to learn their state"
        )
    )


def _answers(sequence: int, results: Iterable[OpResult]) -> list[Answer]:
    """Results of consecutive operations; neighbours that share theirs share an answer."""
    answers = []
    for _, same in groupby(results, key=id):
        shared = [*same]
        answers.append(Answer(sequence, len(shared), shared[0]))
        sequence += len(shared)
    return answers


def _by_operation(runs: tuple[PayloadSequenceRange, ...], faults: Iterable[RowFault]) -> dict[int, list[RowError]]:
    """Sort faults, which are in row order, to the operations that own the rows, beside what the leader found."""
    found: dict[int, list[RowError]] = {}
    waiting = deque(faults)
    number = row = 0
    for run in runs if waiting or any(run.errors for run in runs) else ():
        unfit: dict[int, list[RowError]] = {}
        for place, error in run.errors:
            unfit.setdefault(place, []).append(error)
        for place, count in enumerate(run.row_counts):
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
        raise PluginError(f"the store found {waiting[0]} at fault, which is out of order or no row of the entry")
    return found


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(tuple[int, list[tuple[ClientId, int, int, int, dict[int, _TakenOperation]]]])
