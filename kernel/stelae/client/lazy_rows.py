"""Takes rows from a caller's iterator, a list at a time, in the caller's own thread.

The code behind the iterator may use the same client, or take long. The thread of the client's event loop must wait for
neither, so the synchronous client takes the rows before it calls the loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain, islice
from typing import Any

from stelae.client.key_values import is_series

LIST_ROWS = 65_536
"""Rows of one list. The next rows are taken when these are durable."""

TABLE_BYTES = 8 << 20
"""Once a table has this size, no further batch is added to it."""


def is_lazy(rows: Any) -> bool:
    """Return whether taking the rows may run the caller's Python code."""
    if isinstance(rows, Mapping | Sized | str | bytes) or not isinstance(rows, Iterable) or is_series(rows):
        return False
    return not hasattr(rows, "__arrow_c_stream__")  # Arrow itself reads an Arrow stream.


def take_rows(rows: Iterator[Any], count: int) -> tuple[list[Any], Exception | None]:
    """Return the next rows, at most ``count``, and the error that ended the iterator, or ``None``."""
    taken: list[Any] = []
    try:
        for row in islice(rows, count):
            taken.append(row)  # One by one: if the iterator raises, the rows before are there.
    except Exception as error:
        return taken, error
    return taken, None


def lists_of_rows(rows: Iterable[Any]) -> Iterator[Any]:
    """Yield rows in lists. If the items are Arrow batches, as those of a scan are, yield them in tables.

    If taking a row raises an error, the rows before are yielded first."""
    remaining = iter(rows)
    for first in remaining:
        if type(first).__module__.partition(".")[0] == "pyarrow" and hasattr(first, "num_rows"):
            yield from _tables(chain([first], remaining))
            return
        listed, problem = take_rows(remaining, LIST_ROWS - 1)
        yield [first, *listed]
        if problem is not None:
            raise problem


def _tables(batches: Iterable[Any]) -> Iterator[Any]:
    import pyarrow as pa

    collected: list[Any] = []
    problem: Exception | None = None
    try:
        for batch in batches:
            collected.append(batch)
            if sum(one.nbytes for one in collected) >= TABLE_BYTES:
                yield pa.Table.from_batches(collected)
                collected = []
    except Exception as error:
        problem = error
    if collected:
        yield pa.Table.from_batches(collected)
    if problem is not None:
        raise problem
