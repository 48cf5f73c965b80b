"""Arrow columns from anywhere, made to fit the columns of a table, and which of their rows cannot be.

Nothing is cut, guessed or, but for floats of 32 bits, rounded on the way: a cast that would lose something makes the
row a misfit, and a column of another kind (text for a number) is refused as a whole. What comes from outside is
validated to the last buffer before a value of it is read: an array with a hostile layout is refused, and reads no
memory that is not its own."""

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


class BadArrow(SchemaMismatch, code="BAD_ARROW"):
    """An Arrow array whose buffers are not what its type and length say."""


class Fitted(NamedTuple):
    """A column of the table's type. Rows at fault are null in it; ``bad`` says why, by position."""

    array: Any
    bad: dict[int, str]


def fit_values(column: Column, values: Sequence[Any]) -> Fitted:
    """Fit Python values, and those that stand for some (``stelae.rows.scalars``)."""
    bad: dict[int, str] = {}
    try:
        array = to_array(column, values)
    except SchemaMismatch:
        plain = [plain_scalar(column, value) for value in values]
        bad = {place: describe_misfit(column, values[place]) for place in misfits(column, plain)}
        array = to_array(_nullable(column), [None if p in bad else v for p, v in enumerate(plain)])
    late = out_of_range(column, array)
    bad |= {place: describe_misfit(column, values[place]) for place in late}
    return Fitted(_nulled(array, late) if late else array, bad)


def fit_array(column: Column, array: Any) -> Fitted:
    """Fit a ``pyarrow.Array``.

    Raises:
        SchemaMismatch: its type is of another kind.
        BadArrow: its layout is not sound.
    """
    import pyarrow as pa

    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not pa.types.is_null(kind) and not any(is_kind(kind) for is_kind in _accepted(column.data_type.name)):
        fact = f"column {column.name!r}: expected {column.type}, got a column of {array.type}"
        raise SchemaMismatch(f"{fact}{_kind_hint(column, kind)}")
    sound, bad = _sound(column, array)
    fitted, unfit = _cast(column, sound)
    bad |= {place: _describe(column, sound, place) for place in unfit if place not in bad}
    if fitted.null_count and not column.nullable:
        for place in _places(fitted.is_null()):
            bad.setdefault(place, describe_misfit(column, None))
    return Fitted(fitted, bad)


def _kind_hint(column: Column, kind: Any) -> str:
    """What to do with runs, with text that stands for something else, and with floats that stand for decimals."""
    from pyarrow import types as t

    if t.is_run_end_encoded(kind):
        return "; decode its runs first, with pyarrow.compute.run_end_decode"
    if column.data_type.name == "decimal" and t.is_floating(kind):
        return "; a float is not exact: convert it first, in pandas with .map(lambda value: Decimal(str(value)))"
    is_text = t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind)
    if not is_text or column.type in ("binary", "bool"):
        return ""
    how = "pandas.to_datetime" if column.type in ("date", "timestamp") else "pandas.to_numeric"
    return f"; text is not parsed: convert it first, in pandas with {how}"


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


def _sound(column: Column, array: Any) -> tuple[Any, dict[int, str]]:
    """The array as plain values, once every buffer has proved to be what it should, and the places whose values are
    none of their own type, which are null in it."""
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        return _decoded(column, array)
    try:
        array.validate(full=True)
        return _plain_layout(array), {}
    except (pa.ArrowException, ValueError) as error:
        raw = _as_raw(array)
        if raw is None:
            raise BadArrow(f"column {column.name!r}: the Arrow array is not sound: {str(error)[:200]}") from error
    places = _halved(len(array), lambda start, count: _is_valid(array.slice(start, count)))
    bad = {place: _no_value(column, array, place) for place in places}
    nulled = _nulled(raw, places)
    return (nulled.view(array.type) if raw.type == pa.int64() else nulled.cast(_plain_type(array))), bad


def _decoded(column: Column, array: Any) -> tuple[Any, dict[int, str]]:
    """The same of categories: an entry that is no value fails the rows that have it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    entries, faults = _sound(column, array.dictionary)
    try:
        array.indices.validate(full=True)
        decoded = pa.DictionaryArray.from_arrays(array.indices, entries).dictionary_decode()
    except (pa.ArrowException, ValueError) as error:
        raise BadArrow(f"column {column.name!r}: the Arrow array is not sound: {str(error)[:200]}") from error
    if not faults:
        return decoded, {}
    places = _places(pc.is_in(array.indices, value_set=pa.array([*faults], array.indices.type)))
    return decoded, {place: faults[array.indices[place].as_py()] for place in places}


def _plain_type(array: Any) -> Any:
    """The type of an array in a layout that Arrow can filter and take from, which it cannot from views."""
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
    """Text as bytes, days as numbers, decimals as they are, if only values are at fault; else ``None``."""
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


def _no_value(column: Column, array: Any, place: int) -> str:
    """Say what stands where no value of the array's own type does."""
    import pyarrow as pa

    if array.type == pa.date64():
        expected = column.type if not column.nullable else f"{column.type} or null"
        got = f"{Cells(array)[place]} of date64[ms], which is no whole day"
        return f"column {column.name!r}: expected {expected}, got {got}"
    if pa.types.is_decimal(array.type):
        return _describe(column, array, place)
    return f"column {column.name!r}: expected {column.type}, got bytes that are no UTF-8"


def _is_valid(array: Any) -> bool:
    import pyarrow as pa

    try:
        array.validate(full=True)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _cast(column: Column, array: Any) -> tuple[Any, Sequence[int]]:
    """The array in the column's type, and the places where that would have lost something."""
    target = column.data_type.arrow()
    if array.type == target:
        late = out_of_range(column, array)
        return (_nulled(array, late) if late else array), late
    places = _halved(len(array), lambda start, count: _casts(array.slice(start, count), target))
    array = _nulled(array, places) if places else array
    fitted = array.cast(target)
    lost = _lost(array, fitted) + out_of_range(column, fitted)
    return (_nulled(fitted, lost) if lost else fitted), sorted({*places, *lost})


def _casts(array: Any, target: Any) -> bool:
    import pyarrow as pa

    try:
        array.cast(target)
    except (pa.ArrowException, ValueError):
        return False
    return True


def _lost(given: Any, fitted: Any) -> list[int]:
    """What Arrow's safe casts let through: a double that became infinite, the hours of a date."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(given.type) and pa.types.is_float32(fitted.type):
        return _places(pc.and_not(pc.is_inf(fitted), pc.is_inf(given)))
    if pa.types.is_timestamp(given.type) and pa.types.is_date(fitted.type):
        day = fitted.cast(pa.timestamp(given.type.unit, given.type.tz))
        return _places(pc.not_equal(day, given))
    return []


class Cells:
    """The values of a ``pyarrow.Array`` as it was handed in, for people: what Python has no value for is a number, of
    the unit of the date or time, or bytes that are no text."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, place: int) -> Any:
        value = self._array[place]
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


def _describe(column: Column, array: Any, place: int) -> str:
    return describe_misfit(column, Cells(array)[place], f" (of {array.type})")


def _halved(count: int, holds: Callable[[int, int], bool], start: int = 0) -> list[int]:
    """The places within a span for which something does not hold, found by halving: few bad, few steps."""
    if not count or holds(start, count):
        return []
    if count == 1:
        return [start]
    half = count // 2
    return _halved(half, holds, start) + _halved(count - half, holds, start + half)


def _nulled(array: Any, places: Sequence[int]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = bytearray(len(array))
    for place in places:
        mask[place] = 1
    kept = pc.equal(pa.array(memoryview(mask), pa.uint8()), 0)
    return pc.if_else(kept, array, pa.scalar(None, array.type))


def _places(mask: Any) -> list[int]:
    import pyarrow.compute as pc

    return [int(place) for place in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()]


def _nullable(column: Column) -> Column:
    import msgspec

    return msgspec.structs.replace(column, nullable=True)
