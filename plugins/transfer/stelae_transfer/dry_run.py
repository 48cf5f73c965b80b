"""Checks the rows of a file without writing them (``stelae import --dry-run``)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from stelae.client.failures import FAILURES_MAX, FailureTally
from stelae.client.row_input import RowInput
from stelae.spi.errors import SchemaMismatch
from stelae.spi.schema import Schema
from stelae.spi.write import OpKind
from stelae_transfer.row_chunks import BadRow, RowChunk


def check_chunk(schema: Schema, kind: OpKind, chunk: RowChunk) -> list[BadRow]:
    """Return the rows of a chunk that the client would refuse, with their reasons.

    What only the table knows, such as which keys exist, is not checked."""
    bad = [*chunk.bad]
    for start in range(0, len(chunk.numbers), FAILURES_MAX):
        rows, numbers = chunk.slice(start, FAILURES_MAX)
        tally = FailureTally("", kind)
        try:
            _exhaust(RowInput(schema, kind, tally).batches(rows))
        except SchemaMismatch as error:
            bad.append(BadRow(numbers[0], error.code, str(error), None, len(numbers)))
            continue
        bad += [BadRow(numbers[f.row], f.code, f.reason, f.values) for f in tally.result().failures]
    return sorted(bad, key=lambda row: row.row)


def _exhaust(batches: Iterable[object]) -> None:
    next(islice(batches, 1 << 62, None), None)
