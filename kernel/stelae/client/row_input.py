"""What users hand in (dicts, tuples, Arrow, pandas, polars), as batches that fit a table, and the rows that do not.

Batches come out one by one, of at most ``BATCH_ROWS_MAX`` rows, so that a frame or a stream of any size is never in
memory twice. pandas and polars are not imported here: what is handed in brings them along."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from numbers import Real
from typing import Any, NamedTuple

from stelae.client.arrow_fit import Cells, Fitted, fit_array, fit_values
from stelae.client.failures import FailureTally
from stelae.client.key_values import is_series
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Layout, Schema
from stelae.spi.write import OpKind, RowCode

BATCH_ROWS_MAX = 16_384
"""Most rows of one operation: small enough that several are under way at once."""

BATCH_BYTES = 2 << 20
"""Bytes of values from which on an operation holds fewer rows."""

KEY_ONLY = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})
WHOLE_ROW = frozenset({OpKind.INSERT, OpKind.UPSERT, OpKind.INSERT_IGNORE})

_BAD_VALUE = RowCode.BAD_VALUE.name


class InputBatch(NamedTuple):
    """Rows that fit, of the same columns. ``places`` are their positions in what was handed in."""

    rows: RowBatch
    places: Sequence[int]


class RowInput:
    """Takes what one call hands in.

    Args:
        schema: of the table.
        kind: of the write; deletes take key columns, and ignore others in frames.
        tally: is told of rows that do not fit, and counts all.
    """

    def __init__(self, schema: Schema, kind: OpKind, tally: FailureTally) -> None:
        self._schema = schema
        self._kind = kind
        self._tally = tally

    def batches(self, data: Any) -> Iterator[InputBatch]:
        """Yield what fits, in order.

        Raises:
            SchemaMismatch: columns are unknown, missing or of another kind of type: nothing of the frame fits.
            CallerError: this is nothing that rows can be read from.
        """
        family = type(data).__module__.partition(".")[0]
        if isinstance(data, Mapping | tuple) or is_series(data):
            yield from self._rows([data])
        elif family == "pandas":
            yield from self._pandas(data)
        elif family == "pyarrow" or hasattr(data, "__arrow_c_stream__"):
            yield from self._arrow(data)
        elif family == "polars" and hasattr(data, "collect"):
            yield from self._arrow(data.collect())
        elif isinstance(data, Iterable) and not isinstance(data, str | bytes):
            yield from self._rows(data)
        else:
            raise CallerError(
                f"cannot read rows from {type(data).__name__}; give a dict, a tuple, an iterable of these, "
                "a pyarrow Table or RecordBatch, or a pandas or polars DataFrame"
            )

    # -- frames ----------------------------------------------------------------------------------

    def _arrow(self, data: Any) -> Iterator[InputBatch]:
        import pyarrow as pa

        if isinstance(data, pa.RecordBatch):
            reader: Any = [data]
        elif isinstance(data, pa.Table):
            reader = data.to_batches(max_chunksize=BATCH_ROWS_MAX)
        else:
            try:
                reader = pa.RecordBatchReader.from_stream(data)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise CallerError(f"cannot read rows from {type(data).__name__}: {error}") from error
        for batch in _reading(reader):
            self._check_names(batch.schema.names)
            for start in range(0, len(batch), rows := _rows_per_batch(batch)):
                yield from self._frame(batch.slice(start, rows))

    def _frame(self, batch: Any) -> Iterator[InputBatch]:
        """One Arrow batch, by the names of its columns."""
        layout = self._layout(batch.schema.names)
        given = [batch.column(batch.schema.get_field_index(c.name)) for c in layout.columns]
        fitted = [fit_array(column, array) for column, array in zip(layout.columns, given, strict=True)]
        yield from self._fitted(layout, fitted, len(batch), [Cells(array) for array in given])

    def _pandas(self, frame: Any) -> Iterator[InputBatch]:
        import pyarrow as pa

        if not hasattr(frame, "columns"):
            raise CallerError(f"cannot read rows from a pandas {type(frame).__name__}; give a DataFrame")
        if any(name in self._schema.by_name and name not in frame.columns for name in frame.index.names):
            frame = frame.reset_index()
        names = [str(name) for name in frame.columns]
        self._check_names(names)
        layout = self._layout(names)
        for start in range(0, len(frame), BATCH_ROWS_MAX):
            piece = frame.iloc[start : start + BATCH_ROWS_MAX]
            arrays, given = [], []
            for column in layout.columns:
                series = piece.iloc[:, names.index(column.name)]
                try:
                    array = pa.Array.from_pandas(series)
                except (pa.ArrowException, TypeError, ValueError, OverflowError):
                    # Values of several kinds in one column: look at them one by one.
                    given.append(series.tolist())
                    arrays.append(fit_values(column, given[-1]))
                    continue
                if column.type in ("float", "double") and not column.nullable and array.null_count:
                    # pandas writes a missing number as NaN, which is a value of such a column.
                    array = pa.array(series, from_pandas=False)
                array = _one_chunk(array)
                given.append(Cells(array))
                arrays.append(fit_array(column, array))
            yield from self._fitted(layout, arrays, len(piece), given)

    def _check_names(self, names: Sequence[str]) -> None:
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaMismatch(f"the column {twice[0]!r} stands twice in what was handed in")
        unknown = [name for name in names if name not in self._schema.by_name]
        if unknown:
            raise SchemaMismatch(unknown_columns(self._schema, unknown))

    def _layout(self, names: Iterable[str]) -> Layout:
        return layout_of_names(self._schema, self._kind, names)

    # -- rows ------------------------------------------------------------------------------------

    def _rows(self, rows: Iterable[Any]) -> Iterator[InputBatch]:
        waiting = iter(rows)
        while listed := [*islice(waiting, BATCH_ROWS_MAX)]:
            start = self._tally.rows
            numbered = enumerate(listed, start)
            for shape, mine in groupby(numbered, key=lambda item: _shape(item[1])):
                yield from self._equal_rows(shape, [*mine])
            # What could not be read at all has been counted as failed, not as rows.
            self._tally.rows = start + len(listed)

    def _equal_rows(self, shape: Any, numbered: Sequence[tuple[int, Any]]) -> Iterator[InputBatch]:
        """Neighbours that bring the same columns."""
        if isinstance(shape, type) and is_series(numbered[0][1]):
            yield from self._regrouped([(place, FrameRow(row)) for place, row in numbered])
            return
        if isinstance(shape, tuple) and not all(isinstance(name, str) for name in shape):
            yield from self._regrouped(self._named_by_text(numbered))
            return
        try:
            layout, positions = self._read_shape(shape)
        except SchemaMismatch as error:
            for place, row in numbered:
                self._tally.fail(place, _BAD_VALUE, str(error), dict(row) if isinstance(row, Mapping) else None)
            return
        columns: list[Sequence[Any]] = [[row[position] for _, row in numbered] for position in positions]
        if isinstance(shape, _FrameNames):
            columns = list(map(_nans_as_null, layout.columns, columns))
        fitted = [fit_values(c, values) for c, values in zip(layout.columns, columns, strict=True)]
        yield from self._fitted(layout, fitted, len(numbered), columns, [place for place, _ in numbered])

    def _named_by_text(self, numbered: Sequence[tuple[int, Any]]) -> list[tuple[int, dict[str, Any]]]:
        """Rows whose names are numbers, say, as those of a frame without a header: as a table made of it has them."""
        rows = []
        for place, row in numbered:
            named = {str(name): value for name, value in row.items()}
            if len(named) == len(row):
                rows.append((place, named))
            else:
                self._tally.fail(place, _BAD_VALUE, f"two names of {[*row]} are one as text", named)
        return rows

    def _regrouped(self, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[InputBatch]:
        for names, mine in groupby(rows, key=lambda item: _shape(item[1])):
            yield from self._equal_rows(names, [*mine])

    def _read_shape(self, shape: Any) -> tuple[Layout, Sequence[Any]]:
        schema, key_only = self._schema, self._kind in KEY_ONLY
        if isinstance(shape, type):
            raise SchemaMismatch(f"expected a dict or a tuple, got {shape.__name__}")
        if isinstance(shape, int):
            layout = schema.key_layout if key_only else schema.layout
            if shape != len(layout.columns):
                names = ", ".join(c.name for c in layout.columns)
                raise SchemaMismatch(f"expected {len(layout.columns)} values ({names}), got {shape}")
            return layout, range(shape)
        unknown = [name for name in shape if name not in schema.by_name]
        if unknown:
            raise SchemaMismatch(unknown_columns(schema, unknown))
        if (
            key_only
            and not isinstance(shape, _FrameNames)
            and (others := [n for n in shape if schema.by_name[n].id not in schema.key])
        ):
            raise SchemaMismatch(f"{self._kind.name.lower()} takes the key columns and no others: not {others[0]!r}")
        layout = self._layout(shape)
        return layout, [c.name for c in layout.columns]

    # -- both ------------------------------------------------------------------------------------

    def _fitted(
        self,
        layout: Layout,
        fitted: Sequence[Fitted],
        count: int,
        values: Sequence[Sequence[Any] | Cells],
        places: Sequence[int] | None = None,
    ) -> Iterator[InputBatch]:
        """Leave out the rows at fault, and tell of them."""
        import pyarrow as pa

        if places is None:
            places = range(self._tally.rows, self._tally.rows + count)
            self._tally.rows += count
        bad: dict[int, str] = {}
        for one in fitted:
            for row, reason in one.bad.items():
                bad.setdefault(row, reason)
        arrow = pa.RecordBatch.from_arrays([one.array for one in fitted], names=[c.name for c in layout.columns])
        for row in sorted(bad):
            known = None
            if self._tally.keeps:
                cells = [column[row] for column in values]
                known = dict(zip((c.name for c in layout.columns), cells, strict=True))
            self._tally.fail(places[row], _BAD_VALUE, bad[row], known)
        if bad:
            arrow = arrow.filter(pa.array([row not in bad for row in range(count)], pa.bool_()))
            places = [place for row, place in enumerate(places) if row not in bad]
        for start in range(0, len(arrow), rows := _rows_per_batch(arrow)):
            piece = arrow.slice(start, rows)
            yield InputBatch(RowBatch.from_arrays(layout, piece.columns), places[start : start + rows])


def layout_of_names(schema: Schema, kind: OpKind, names: Iterable[str]) -> Layout:
    """Return the columns that a write of some names brings: in the order of the schema, or of its key.

    ``SchemaMismatch``: the kind of write needs values for other columns, too."""
    given = {*names}
    needed = [c for c in schema.columns if c.id in schema.key or (kind in WHOLE_ROW and c.required)]
    lacking = [repr(c.name) for c in needed if c.name not in given]
    if lacking:
        raise SchemaMismatch(f"{kind.name.lower()} needs values for the columns {', '.join(lacking)}")
    if kind in KEY_ONLY:
        return schema.key_layout
    return schema.project(tuple(c.id for c in schema.columns if c.name in given))


def unknown_columns(schema: Schema, unknown: Sequence[str]) -> str:
    """Say which columns there are instead of those that a caller named."""
    first = str(unknown[0])
    close = [name for name in schema.by_name if name.lower() == first.strip().lower()]
    close = close or difflib.get_close_matches(first, schema.by_name, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    known = ", ".join(schema.by_name)
    return f"no column {', '.join(repr(name) for name in unknown[:5])}; the table has: {known}{hint}"


class FrameRow(dict[str, Any]):
    """A row of a pandas frame, by column. As in the frame, NaN is null where the column allows it."""

    def __init__(self, series: Any) -> None:
        super().__init__((str(name), value) for name, value in series.items())


def _nans_as_null(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    if not column.nullable:
        return values
    return [None if isinstance(value, Real) and value != value else value for value in values]


class _FrameNames(tuple[str, ...]):
    """The columns of a ``FrameRow``, which is not taken together with other rows of these columns."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FrameNames) and super().__eq__(other)

    __hash__ = tuple.__hash__


def _shape(row: Any) -> Any:
    """What tells rows that can be taken together: their names, their number of values, or a type that is no row."""
    if isinstance(row, Mapping):
        try:
            names = sorted(row)
        except TypeError:  # Text and numbers.
            names = sorted(row, key=str)
        return _FrameNames(names) if type(row) is FrameRow else tuple(names)
    return len(row) if isinstance(row, tuple | list) else type(row)


def _reading(reader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a stream; what goes wrong in it is the caller's."""
    import pyarrow as pa

    try:
        yield from reader
    except (pa.ArrowException, OSError) as error:
        raise CallerError(f"the stream of batches broke off; what came before is written: {error}") from error


def _rows_per_batch(batch: Any) -> int:
    try:
        size_bytes = batch.nbytes
    except (ValueError, IndexError, OSError):
        size_bytes = 0  # Buffers that are too short; what is wrong with them is said when they are read.
    fair = BATCH_BYTES * len(batch) // size_bytes if size_bytes > BATCH_BYTES else BATCH_ROWS_MAX
    return max(1, min(fair, BATCH_ROWS_MAX))


def _one_chunk(array: Any) -> Any:
    return array.combine_chunks() if hasattr(array, "combine_chunks") else array
