"""Counts how sequence ranges were sent, applied and answered.

- ``range.several``: a replica applied a range of more than one operation.
- ``range.partly_known``: it skipped some operations of such a range, because it knew them already.
- ``range.fault_within``: some operations of such a range had row errors.
- ``range.regrouped``: a request sent an operation in another range than before.
- ``range.partly_stale``: some operations of a range in a request were answered as stale, others were not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stelae.sim.coverage import Coverage
from stelae.sim.history import AnswerKind, ClientOperation
from stelae.spi.payload import WritePayload
from stelae.spi.write import SequenceRange


def count_sent(coverage: Coverage, operations: Sequence[ClientOperation], ranges: Sequence[SequenceRange]) -> None:
    """Count the ranges of a request, and record in each of its operations the range in which it is sent."""
    asked = {operation.sequence: operation for operation in operations}
    for sequence_range in ranges:
        sent_range = range(sequence_range.first_sequence, sequence_range.first_sequence + len(sequence_range.ops))
        if any(asked[sequence].sent_range not in (None, sent_range) for sequence in sent_range):
            coverage.hit("range.regrouped")
        for sequence in sent_range:
            asked[sequence].sent_range = sent_range


def count_applied(coverage: Coverage, payload: WritePayload, skipped: frozenset[int], faulty: frozenset[int]) -> None:
    """Count the ranges of an entry.

    Args:
        skipped: numbers of the skipped operations, counted through all ranges of the entry.
        faulty: numbers of the operations with row errors, counted likewise.
    """
    start = 0
    for sequence_range in payload.sequences:
        operations = range(start, start + len(sequence_range.digests))
        start = operations.stop
        if len(operations) == 1:
            continue
        coverage.hit("range.several")
        if 0 < len(skipped.intersection(operations)) < len(operations):
            coverage.hit("range.partly_known")
        if 0 < len(faulty.intersection(operations)) < len(operations):
            coverage.hit("range.fault_within")


def count_answered(coverage: Coverage, ranges: Sequence[SequenceRange], answers: Mapping[int, AnswerKind]) -> None:
    """Count the ranges of a request. ``answers`` has the answers of its operations by sequence number."""
    for sequence_range in ranges:
        kinds = {answers.get(sequence_range.first_sequence + offset) for offset in range(len(sequence_range.ops))}
        if AnswerKind.STALE in kinds and len(kinds) > 1:
            coverage.hit("range.partly_stale")
