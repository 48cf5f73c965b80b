"""The parts of what lookups found: rows in row form, and pages of Arrow rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from stelae.protocol.lookup_messages import LookupReply, unpack_positions
from stelae.rows.arrow_page import decoded_rows
from stelae.rows.limits import out_of_range
from stelae.spi.errors import Corrupt
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.services import Buffer


class FoundValues(NamedTuple):
    """Rows of consecutive keys of a lookup, in row form."""

    ids: Sequence[int]  #: Ids of the columns, in the order of the values.
    rows: Sequence[Any]  #: For each key the plain values of its row, or ``None``. Decimals are text.


class FoundPage(NamedTuple):
    """Rows of consecutive keys of a lookup, as an Arrow batch."""

    rows: RowBatch
    positions: Sequence[int]  #: For each key the position of its row in ``rows``; -1: it has no row.


FoundPart: TypeAlias = FoundValues | FoundPage


def found_pages(reply: LookupReply, frames: Sequence[Buffer], schema: Schema) -> Sequence[FoundPage]:
    """Return the pages of an answer.

    Args:
        reply: the first frame of the answer, decoded.
        frames: the further frames.
        schema: of the version that the request named.

    Raises:
        Corrupt: the frames are not the pages that the reply announces.
    """
    if len(frames) != len(reply.pages):
        raise Corrupt(f"the reply to a lookup announces {len(reply.pages)} pages and has {len(frames)}")
    if frames and reply.ids is not None:
        raise Corrupt("the reply to a lookup has pages of a schema that the client does not know")
    batches = [decoded_rows(schema.layout, frame) for frame in frames]
    for batch in batches:
        _check_range(batch)
    positions = map(unpack_positions, reply.pages, map(len, batches))
    return [FoundPage(batch, one) for batch, one in zip(batches, positions, strict=True)]


def _check_range(rows: RowBatch) -> None:
    for column, array in zip(rows.layout.columns, rows.arrow.columns, strict=True):
        if out_of_range(column, array):
            raise Corrupt(f"column {column.name!r} of found rows has values that no {column.type} has")
