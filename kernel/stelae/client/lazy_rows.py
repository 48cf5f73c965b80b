"""Rows that are made while they are taken: for the synchronous face, which takes them in its caller's own thread.

Whoever makes them may use the same client, or take its time; the thread of the client's loop can wait for neither."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain, islice
from typing import Any

from stelae.client.key_values import is_series

PIECE_ROWS = 65_536
"""Rows that are taken before they are written; the next ones are taken when these are durable."""

PIECE_BYTES = 8 << 20
"""The same of batches, from which on no further one is taken."""


def is_lazy(rows: Any) -> bool:
    """Whether rows may be made by somebody's Python when they are asked for."""
    if isinstance(rows, Mapping | Sized | str | bytes) or not isinstance(rows, Iterable) or is_series(rows):
        return False
    return not hasattr(rows, "__arrow_c_stream__")  # A stream of Arrow is read by Arrow.


def pieces(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield lists of rows; of a scan, whose items are batches, tables."""
    waiting = iter(rows)
    for first in waiting:
        if type(first).__module__.partition(".")[0] == "pyarrow" and hasattr(first, "num_rows"):
            yield from _tables(chain([first], waiting))
            return
        yield [first, *islice(waiting, PIECE_ROWS - 1)]


def _tables(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        if sum(one.nbytes for one in held) >= PIECE_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)
