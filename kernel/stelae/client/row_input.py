"""Checks a caller's rows (dicts, tuples, Arrow, pandas, polars) and converts them into Arrow batches of a table.

Rows that do not fit the table are counted as failed. Batches are made one by one, of at most ``BATCH_ROWS_MAX`` rows,
so a frame or a stream of any size is never in memory twice. This module does not import pandas or polars: a caller that
passes a frame has imported them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from numbers import Real
from typing import Any, NamedTuple

from stelae.client.arrow_fit import Cells, Fitted, fit_array, fit_values
from stelae.client.failures import FailureTally
from stelae.client.key_values import is_series
from stelae.client.lazy_rows import take_rows
from stelae.spi.errors import CallerError, SchemaMismatch
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Column, Layout, Schema
from stelae.spi.write import OpKind, RowCode

BATCH_ROWS_MAX = 16_384
"""The most rows of one batch. It is small enough that several batches of a call are in flight."""

BATCH_BYTES = 2 << 20
"""Bytes of values in a batch. One of more than one row has at most twice as many."""

KEY_ONLY = frozenset({OpKind.DELETE, OpKind.DELETE_IGNORE})
"""The kinds of write whose rows have the key columns only."""

WHOLE_ROW = frozenset({OpKind.INSERT, OpKind.UPSERT, OpKind.INSERT_IGNORE})
"""The kinds of write whose rows have all required columns."""

_BAD_VALUE = RowCode.BAD_VALUE.name


class InputBatch(NamedTuple):
    """Rows that fit the table, all with the same columns."""

    rows: RowBatch
    positions: Sequence[int]  #: Positions of the rows in the caller's input.


class RowInput:
    """Converts the rows of one call.

    Args:
        schema: of the table.
        kind: of the write. Deletes need the key columns; in frames they ignore other columns.
        tally: counts all rows, and collects the rows that do not fit.
    """

    def __init__(self, schema: Schema, kind: OpKind, tally: FailureTally) -> None:
        self._schema = schema
        self._kind = kind
        self._tally = tally

    def batches(self, data: Any) -> Iterator[InputBatch]:
        """Yield the rows that fit, in order.

        Raises:
            SchemaMismatch: columns of a frame are unknown, missing or of another kind of type, so no row fits.
            CallerError: rows cannot be read from ``data``.
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
        elif isinstance(data, list | tuple) and data and type(data[0]).__module__.partition(".")[0] == "pyarrow":
            for batch in data:
                yield from self._arrow(batch)
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
            # The columns of a table without rows are checked, too.
            reader = data.to_batches(max_chunksize=BATCH_ROWS_MAX) or [pa.RecordBatch.from_pylist([], data.schema)]
        else:
            try:
                reader = pa.RecordBatchReader.from_stream(data)
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise CallerError(f"cannot read rows from {type(data).__name__}: {error}") from error
        for batch in _stream_batches(reader):
            self._check_names(batch.schema.names)
            for start in range(0, len(batch) or 1, rows := _rows_per_batch(batch)):
                yield from self._frame(batch.slice(start, rows))

    def _frame(self, batch: Any) -> Iterator[InputBatch]:
        """Yield the rows of an Arrow batch, whose columns are matched by name."""
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
            frame_slice = frame.iloc[start : start + BATCH_ROWS_MAX]
            arrays, given = [], []
            for column in layout.columns:
                series = frame_slice.iloc[:, names.index(column.name)]
                try:
                    array = _array_of(column, series)
                except (pa.ArrowException, TypeError, ValueError, OverflowError):
                    # The column has values of several types, so each value is checked by itself.
                    given.append(series.tolist())
                    arrays.append(fit_values(column, given[-1]))
                    continue
                given.append(Cells(array))
                arrays.append(fit_array(column, array))
            yield from self._fitted(layout, arrays, len(frame_slice), given)

    def _check_names(self, names: Sequence[str]) -> None:
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise SchemaMismatch(f"the column {repeated[0]!r} appears twice in the input; give each column once")
        unknown = [name for name in names if name not in self._schema.by_name]
        if unknown:
            raise SchemaMismatch(unknown_columns(self._schema, unknown))

    def _layout(self, names: Iterable[str]) -> Layout:
        return layout_of_names(self._schema, self._kind, names)

    # -- rows ------------------------------------------------------------------------------------

    def _rows(self, rows: Iterable[Any]) -> Iterator[InputBatch]:
        remaining = iter(rows)
        problem: Exception | None = None
        while problem is None:
            listed, problem = take_rows(remaining, BATCH_ROWS_MAX)
            if not listed:
                break
            start = self._tally.rows
            numbered = enumerate(listed, start)
            for shape, group in groupby(numbered, key=lambda item: _shape(item[1])):
                yield from self._equal_rows(shape, [*group])
            # Rows that cannot be read are failures already, but were not counted as rows of the call yet.
            self._tally.rows = start + len(listed)
        if problem is not None:
            raise problem  # An error of the caller's iterator. The rows before are yielded.

    def _equal_rows(self, shape: Any, numbered: Sequence[tuple[int, Any]]) -> Iterator[InputBatch]:
        """Yield batches of consecutive rows of the same shape."""
        if isinstance(shape, type) and is_series(numbered[0][1]):
            yield from self._regrouped([(position, FrameRow(row)) for position, row in numbered])
            return
        if isinstance(shape, tuple) and not all(isinstance(name, str) for name in shape):
            yield from self._regrouped(self._named_by_text(numbered))
            return
        try:
            layout, fields = self._read_shape(shape)
        except SchemaMismatch as error:
            for position, row in numbered:
                self._tally.fail(position, _BAD_VALUE, str(error), dict(row) if isinstance(row, Mapping) else None)
            return
        columns: list[Sequence[Any]] = [[row[field] for _, row in numbered] for field in fields]
        if isinstance(shape, _FrameNames):
            columns = list(map(_nans_as_null, layout.columns, columns))
        fitted = [fit_values(c, values) for c, values in zip(layout.columns, columns, strict=True)]
        yield from self._fitted(layout, fitted, len(numbered), columns, [position for position, _ in numbered])

    def _named_by_text(self, numbered: Sequence[tuple[int, Any]]) -> list[tuple[int, dict[str, Any]]]:
        """Return rows with their column names as text: a frame without a header has numbers as names."""
        rows = []
        for position, row in numbered:
            named = {str(name): value for name, value in row.items()}
            if len(named) == len(row):
                rows.append((position, named))
            else:
                self._tally.fail(position, _BAD_VALUE, f"two names of {[*row]} are the same as text", named)
        return rows

    def _regrouped(self, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[InputBatch]:
        for names, group in groupby(rows, key=lambda item: _shape(item[1])):
            yield from self._equal_rows(names, [*group])

    def _read_shape(self, shape: Any) -> tuple[Layout, Sequence[Any]]:
        """Return the layout of rows of a shape, and the index by which a row has the value of each column."""
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
            raise SchemaMismatch(f"{self._kind.name.lower()} takes only the key columns, not {others[0]!r}")
        layout = self._layout(shape)
        return layout, [c.name for c in layout.columns]

    # -- both ------------------------------------------------------------------------------------

    def _fitted(
        self,
        layout: Layout,
        fitted: Sequence[Fitted],
        count: int,
        values: Sequence[Sequence[Any] | Cells],
        positions: Sequence[int] | None = None,
    ) -> Iterator[InputBatch]:
        """Yield the rows that fit as batches, and count the others as failed."""
        import pyarrow as pa

        if positions is None:
            positions = range(self._tally.rows, self._tally.rows + count)
            self._tally.rows += count
        bad: dict[int, str] = {}
        for one in fitted:
            for row, reason in one.bad.items():
                bad.setdefault(row, reason)
        arrow = pa.RecordBatch.from_arrays([one.array for one in fitted], names=[c.name for c in layout.columns])
        for row in sorted(bad):
            known = None
            if self._tally.has_room:
                cells = [column[row] for column in values]
                known = dict(zip((c.name for c in layout.columns), cells, strict=True))
            self._tally.fail(positions[row], _BAD_VALUE, bad[row], known)
        if bad:
            arrow = arrow.filter(pa.array([row not in bad for row in range(count)], pa.bool_()))
            positions = [position for row, position in enumerate(positions) if row not in bad]
        for start, batch in _small_batches(arrow):
            yield InputBatch(RowBatch.from_arrays(layout, batch.columns), positions[start : start + len(batch)])


def layout_of_names(schema: Schema, kind: OpKind, names: Iterable[str]) -> Layout:
    """Return the layout of a write whose rows have columns of these names, in the order of the schema or of its key.

    Raises:
        SchemaMismatch: a write of this kind needs values for other columns, too.
    """
    given = {*names}
    needed = [c for c in schema.columns if c.id in schema.key or (kind in WHOLE_ROW and c.required)]
    lacking = [repr(c.name) for c in needed if c.name not in given]
    if lacking:
        raise SchemaMismatch(f"{kind.name.lower()} needs values for the columns {', '.join(lacking)}")
    if kind in KEY_ONLY:
        return schema.key_layout
    return schema.project(tuple(c.id for c in schema.columns if c.name in given))


def unknown_columns(schema: Schema, unknown: Sequence[str]) -> str:
    """Return the message for columns that the table does not have: the columns that it has, and a likely name."""
    first = str(unknown[0])
    close = [name for name in schema.by_name if name.lower() == first.strip().lower()]
    close = close or difflib.get_close_matches(first, schema.by_name, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    known = ", ".join(schema.by_name)
    return f"no column {', '.join(repr(name) for name in unknown[:5])}; the table has: {known}{hint}"


class FrameRow(dict[str, Any]):
    """A row of a pandas frame, by column name. As in a frame, NaN is null if the column can be null."""

    def __init__(self, series: Any) -> None:
        super().__init__((str(name), value) for name, value in series.items())


def _nans_as_null(column: Column, values: Sequence[Any]) -> Sequence[Any]:
    if not column.nullable:
        return values
    return [None if isinstance(value, Real) and value != value else value for value in values]


class _FrameNames(tuple[str, ...]):
    """The shape of a ``FrameRow``. It differs from the shape of a dict with the same columns, because NaN is null."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FrameNames) and super().__eq__(other)

    __hash__ = tuple.__hash__


def _shape(row: Any) -> Any:
    """Return the shape of a row: its column names, its number of values, or the type of something that is no row.

    Consecutive rows of one shape are converted together."""
    if isinstance(row, Mapping):
        try:
            names = sorted(row)
        except TypeError:  # Names of several types cannot be compared.
            names = sorted(row, key=str)
        return _FrameNames(names) if type(row) is FrameRow else tuple(names)
    return len(row) if isinstance(row, tuple | list) else type(row)


def _stream_batches(reader: Iterable[Any]) -> Iterator[Any]:
    """Yield the batches of a stream; ``CallerError``: the stream raises an error."""
    import pyarrow as pa

    try:
        yield from reader
    except (pa.ArrowException, OSError) as error:
        raise CallerError(f"the stream of batches failed; the batches before are written: {error}") from error


def _small_batches(batch: Any) -> Iterator[tuple[int, Any]]:
    """Divide a batch into batches of about ``BATCH_BYTES``; yield each with the number of its first row.

    Rows may differ in size: a batch that is more than twice as large is halved until it is not, or has one row."""
    rows = _rows_per_batch(batch)
    remaining = [(start, batch.slice(start, rows)) for start in range(0, len(batch), rows)][::-1]
    while remaining:
        start, small = remaining.pop()
        if len(small) < 2 or _size_bytes(small) <= 2 * BATCH_BYTES:
            yield start, small
            continue
        half = len(small) // 2
        remaining += [(start + half, small.slice(half)), (start, small.slice(0, half))]


def _size_bytes(batch: Any) -> int:
    try:
        return int(batch.nbytes)
    except (ValueError, IndexError, OSError):
        return 0  # The buffers are too short. Reading them raises the error with its reason.


def _rows_per_batch(batch: Any) -> int:
    size_bytes = _size_bytes(batch)
    rows = BATCH_BYTES * len(batch) // size_bytes if size_bytes > BATCH_BYTES else BATCH_ROWS_MAX
    return max(1, min(rows, BATCH_ROWS_MAX))


def _array_of(column: Column, series: Any) -> Any:
    """Return a column of a pandas frame as a ``pyarrow.Array``. Raises errors of Arrow and Python if its values are of
    several types."""
    import pyarrow as pa

    array = pa.Array.from_pandas(series)
    if column.type in ("float", "double") and not column.nullable and array.null_count:
        # pandas has NaN for a missing number, and NaN is a valid value of a column that cannot be null.
        array = pa.array(series, from_pandas=False)
    return array.combine_chunks() if hasattr(array, "combine_chunks") else array
