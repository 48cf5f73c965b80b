"""What became of the runs in which operations travel, counted: how they were sent, applied and answered.

Of the runs of more than one operation that a replica applied (``run.several``), some were skipped in part
(``run.partly_known``), and of some a part had row errors (``run.fault_within``). Runs of requests are
``run.regrouped`` if one of their operations travelled in other company before, and ``run.partly_stale`` if some of
them were called stale and others were not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stelae.sim.coverage import Coverage
from stelae.sim.history import AnswerKind, ClientOperation
from stelae.spi.payload import WritePayload
from stelae.spi.write import SequenceRange


def count_sent(coverage: Coverage, operations: Sequence[ClientOperation], runs: Sequence[SequenceRange]) -> None:
    """Count the runs of a request of ``operations``, and remember of each operation in which run it went."""
    asked = {operation.sequence: operation for operation in operations}
    for run in runs:
        company = range(run.first_sequence, run.first_sequence + len(run.ops))
        if any(asked[sequence].company not in (None, company) for sequence in company):
            coverage.hit("run.regrouped")
        for sequence in company:
            asked[sequence].company = company


def count_applied(coverage: Coverage, payload: WritePayload, skipped: frozenset[int], faulty: frozenset[int]) -> None:
    """Count the runs of an entry; operations ``skipped`` or with row errors are numbered through all its runs."""
    start = 0
    for run in payload.sequences:
        operations = range(start, start + len(run.digests))
        start = operations.stop
        if len(operations) == 1:
            continue
        coverage.hit("run.several")
        if 0 < len(skipped.intersection(operations)) < len(operations):
            coverage.hit("run.partly_known")
        if 0 < len(faulty.intersection(operations)) < len(operations):
            coverage.hit("run.fault_within")


def count_answered(coverage: Coverage, runs: Sequence[SequenceRange], answers: Mapping[int, AnswerKind]) -> None:
    """Count the runs of a request by what its operations were answered, by sequence."""
    for run in runs:
        kinds = {answers.get(run.first_sequence + place) for place in range(len(run.ops))}
        if AnswerKind.STALE in kinds and len(kinds) > 1:
            coverage.hit("run.partly_stale")
