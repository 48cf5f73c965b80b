"""Converts Arrow columns to the column types of a table, and finds the rows whose values do not fit.

No value is cut or guessed, and only 32-bit floats are rounded. A row whose value a cast would change does not fit. A
column of another kind (text for a number) is refused as a whole. An array from outside is validated with all of its
buffers before a value is read, so an array with an invalid layout is refused and never reads memory outside of its
buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stelae.rows.batch_building import describe_misfit, misfits
from stelae.rows.limits import out_of_range
from stelae.rows.scalars import plain_scalar
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import to_array
from stelae.spi.schema import Column

_DAY_MS = 86_400_000
_INTEGER_DIGITS_MAX = 20
"""The most digits of any integer of 64 bits."""


class BadArrow(SchemaMismatch, code="BAD_ARROW"):
    """An Arrow array whose buffers do not match its type and length."""


class Fitted(NamedTuple):
    """A column of the table's type."""

    array: Any  #: The values; null where a value does not fit.
    bad: dict[int, str]  #: Why values do not fit, by position.


def fit_values(column: Column, values: Sequence[Any]) -> Fitted:
    """Convert Python values, and scalars of numpy, pandas and Arrow (``stelae.rows.scalars``)."""
    bad: dict[int, str] = {}
    try:
        array = to_array(column, values)
    except SchemaMismatch:
        plain = [plain_scalar(column, value) for value in values]
        bad = {position: describe_misfit(column, values[position]) for position in misfits(column, plain)}
        array = to_array(_nullable(column), [None if p in bad else v for p, v in enumerate(plain)])
    late = out_of_range(column, array)
    bad |= {position: describe_misfit(column, values[position]) for position in late}
    return Fitted(_nulled(array, late) if late else array, bad)


def fit_array(column: Column, array: Any) -> Fitted:
    """Convert a ``pyarrow.Array``.

    Raises:
        SchemaMismatch: the type of the array is of another kind.
        BadArrow: the layout of the array is invalid.
    """
    import pyarrow as pa

    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not pa.types.is_null(kind) and not any(is_kind(kind) for is_kind in _accepted(column.data_type.name)):
        fact = f"column {column.name!r}: expected {column.type}, got a column of {array.type}"
        raise SchemaMismatch(f"{fact}{_kind_hint(column, kind)}")
    valid, bad = _validated(column, array)
    fitted, unfit = _cast(column, valid)
    bad |= {position: _describe(column, valid, position) for position in unfit if position not in bad}
    if fitted.null_count and not column.nullable:
        for position in _positions(fitted.is_null()):
            bad.setdefault(position, describe_misfit(column, None))
    return Fitted(fitted, bad)


def _kind_hint(column: Column, kind: Any) -> str:
    """Return what to do with run-end-encoded arrays, with text for values, and with floats for decimals."""
    from pyarrow import types as t

    if t.is_run_end_encoded(kind):
        return "; decode it first with pyarrow.compute.run_end_decode"
    if column.data_type.name == "decimal" and t.is_floating(kind):
        return "; a float is not exact; convert it first, in pandas with .map(lambda value: Decimal(str(value)))"
    is_text = t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind)
    if not is_text or column.type in ("binary", "bool"):
        return ""
    how = "pandas.to_datetime" if column.type in ("date", "timestamp") else "pandas.to_numeric"
    return f"; text is not parsed; convert it first, in pandas with {how}"


def _accepted(name: str) -> Sequence[Callable[[Any], bool]]:
    from pyarrow import types as t

    texts = (t.is_string, t.is_large_string, t.is_string_view)
    raws = (t.is_binary, t.is_large_binary, t.is_fixed_size_binary, t.is_binary_view)
    kinds: dict[str, Sequence[Callable[[Any], bool]]] = {
        "bool": (t.is_boolean,),
        "float": (t.is_floating, t.is_integer),
        "double": (t.is_floating, t.is_integer),
        "decimal": (t.is_decimal, t.is_integer),
        "string": texts,
        "binary": raws,
        "date": (t.is_date, t.is_timestamp),
        "timestamp": (t.is_timestamp, t.is_date),
    }
    return kinds.get(name, (t.is_integer, t.is_floating))


def _validated(column: Column, array: Any) -> tuple[Any, dict[int, str]]:
    """Validate an array; return it in a plain layout, and the reasons for values that are invalid in its own type.

    Such values are null in the array that is returned."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        return _decoded(column, array)
    try:
        array.validate(full=True)
        return _plain_layout(array), {}
    except (pa.ArrowException, ValueError) as error:
        raw = _as_raw(array)
        if raw is None:
            raise BadArrow(f"column {column.name!r}: the Arrow array is invalid: {str(error)[:200]}") from error
    positions = failing_positions(len(array), lambda start, count: _is_valid(array.slice(start, count)))
    bad = {position: _invalid_value(column, array, position) for position in positions}
    nulled = _nulled(raw, positions)
    return (nulled.view(array.type) if raw.type == pa.int64() else nulled.cast(_plain_type(array))), bad


def _decoded(column: Column, array: Any) -> tuple[Any, dict[int, str]]:
    """Do the same with an array of categories. An invalid category fails the rows that have it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    entries, faults = _validated(column, array.dictionary)
    try:
        array.indices.validate(full=True)
        decoded = pa.DictionaryArray.from_arrays(array.indices, entries).dictionary_decode()
    except (pa.ArrowException, ValueError) as error:
        raise BadArrow(f"column {column.name!r}: the Arrow array is invalid: {str(error)[:200]}") from error
    if not faults:
        return decoded, {}
    positions = _positions(pc.is_in(array.indices, value_set=pa.array([*faults], array.indices.type)))
    return decoded, {position: faults[array.indices[position].as_py()] for position in positions}


def _plain_type(array: Any) -> Any:
    """Return the type of an array in a layout that Arrow can filter. It cannot filter views."""
    import pyarrow as pa

    is_text = array.type == pa.string_view()
    if not is_text and array.type != pa.binary_view():
        return array.type
    if array.nbytes >= 1 << 31:
        return pa.large_string() if is_text else pa.large_binary()
    return pa.string() if is_text else pa.binary()


def _plain_layout(array: Any) -> Any:
    kind = _plain_type(array)
    return array if kind == array.type else array.cast(kind)


def _as_raw(array: Any) -> Any:
    """Return an array with invalid values in a type that allows them: text as bytes, days as numbers, decimals as they
    are. ``None``: not only values are invalid."""
    import pyarrow as pa

    raws = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    is_decimal = pa.types.is_decimal(array.type)
    raw = pa.int64() if array.type == pa.date64() else array.type if is_decimal else raws.get(array.type)
    if raw is None:
        return None
    try:
        same = pa.Array.from_buffers(raw, len(array), array.buffers(), offset=array.offset)
        same.validate(full=not is_decimal)
    except (pa.ArrowException, ValueError):
        return None
    return _plain_layout(same)


def _invalid_value(column: Column, array: Any, position: int) -> str:
    """Return the reason for a value that is invalid in the array's own type."""
    import pyarrow as pa

    if array.type == pa.date64():
        expected = column.type if not column.nullable else f"{column.type} or null"
        got = f"{Cells(array)[position]} of date64[ms], which is not a whole day"
        return f"column {column.name!r}: expected {expected}, got {got}"
    if pa.types.is_decimal(array.type):
        return _describe(column, array, position)
    return f"column {column.name!r}: expected {column.type}, got bytes that are not UTF-8"


def _is_valid(array: Any) -> bool:
    import pyarrow as pa

    try:
        array.validate(full=True)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _cast(column: Column, array: Any) -> tuple[Any, Sequence[int]]:
    """Return the array in the column's type, and the positions of the values that the cast would change."""
    import pyarrow as pa

    target = column.data_type.arrow()
    if array.type == target:
        late = out_of_range(column, array)
        return (_nulled(array, late) if late else array), late
    if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
        # Arrow refuses a decimal with fewer digits than the integer type, whatever the values. These have enough.
        array = array.cast(pa.decimal128(_INTEGER_DIGITS_MAX, 0))
    positions = failing_positions(len(array), lambda start, count: _casts(array.slice(start, count), target))
    array = _nulled(array, positions) if positions else array
    fitted = array.cast(target)
    lost = _lost(array, fitted) + out_of_range(column, fitted)
    return (_nulled(fitted, lost) if lost else fitted), sorted({*positions, *lost})


def _casts(array: Any, target: Any) -> bool:
    import pyarrow as pa

    try:
        array.cast(target)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _lost(given: Any, fitted: Any) -> list[int]:
    """Return the positions of values that Arrow's safe casts change: a double that became infinite, a time of day."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(given.type) and pa.types.is_float32(fitted.type):
        return _positions(pc.and_not(pc.is_inf(fitted), pc.is_inf(given)))
    if pa.types.is_timestamp(given.type) and pa.types.is_date(fitted.type):
        # The first day of the unit begins before the unit's least time. Unchecked, its start overflows to another time.
        day = fitted.cast(pa.timestamp(given.type.unit, given.type.tz), safe=False)
        return _positions(pc.not_equal(day, given))
    return []


class Cells:
    """The values of a caller's ``pyarrow.Array``, for messages.

    A date or time that Python cannot represent is a number in its unit. Text that is not UTF-8 is bytes."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, position: int) -> Any:
        value = self._array[position]
        if hasattr(value, "dictionary") and value.is_valid:
            value = value.value
        try:
            return value.as_py() if not _is_part_of_day(value) else value.value
        except UnicodeDecodeError:
            return value.as_buffer().to_pybytes()
        except (ValueError, OverflowError):
            return value.value


def _is_part_of_day(value: Any) -> bool:
    import pyarrow as pa

    return bool(value.type == pa.date64() and value.is_valid and value.value % _DAY_MS)


def _describe(column: Column, array: Any, position: int) -> str:
    return describe_misfit(column, Cells(array)[position], f" (of {array.type})")


def failing_positions(count: int, holds: Callable[[int, int], bool], start: int = 0) -> list[int]:
    """Return the positions of a span at which a condition fails. The span is halved, so few failures need few calls.

    Args:
        count: length of the span.
        holds: returns whether the condition holds at every position of a span, given by its start and its length.
        start: first position of the span.
    """
    if not count or holds(start, count):
        return []
    if count == 1:
        return [start]
    half = count // 2
    return failing_positions(half, holds, start) + failing_positions(count - half, holds, start + half)


def _nulled(array: Any, positions: Sequence[int]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = bytearray(len(array))
    for position in positions:
        mask[position] = 1
    fits = pc.equal(pa.array(memoryview(mask), pa.uint8()), 0)
    return pc.if_else(fits, array, pa.scalar(None, array.type))


def _positions(mask: Any) -> list[int]:
    import pyarrow.compute as pc

    return [int(position) for position in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()]


def _nullable(column: Column) -> Column:
    import msgspec

    return msgspec.structs.replace(column, nullable=True)
