"""The row form: rows of Python values as tuples of plain values, ready for msgpack.

A call that writes few rows must not use Arrow: one row of eight columns costs 400 us as a batch, and 3 us here. The
Arrow path (``to_array`` and ``RowBatch.to_rows``) defines the result. A :class:`RowForm` accepts only values whose type
and range are certain, and returns for them exactly what the Arrow path returns. For any other value it raises
``NotPlain``. Then the caller uses the Arrow path, which converts the value or explains why it is wrong.

Plain values are the values that msgpack carries: a date is the number of days since 1970, a timestamp the number of
microseconds, a decimal a ``Decimal`` with the column's scale."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from struct import Struct
from typing import Any, TypeAlias

from stelae.rows.limits import RANGES
from stelae.spi.schema import Column, Layout

Check: TypeAlias = Callable[[Any], Any]
"""Returns the plain value of a value. Raises :class:`NotPlain` for a value that needs the Arrow path."""

_DAY_0 = date(1970, 1, 1).toordinal()
_TIME_0 = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_INTEGERS_OF_DOUBLES = 1 << 53  # Every integer up to here is a double.
_SINGLE = Struct("<f")


class NotPlain(Exception):
    """A row needs the Arrow path: because of a value, or because of its number of values."""


class RowForm:
    """Converts rows of one layout to row form."""

    __slots__ = ("_checks", "layout")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._checks = tuple([_check_of(column) for column in layout.columns])

    def take(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the plain values of one row. ``values`` has one value for each column, in the order of the layout.

        ``NotPlain``: the number of values is wrong, or a value needs the Arrow path."""
        checks = self._checks
        if len(values) != len(checks):
            raise NotPlain
        return tuple([check(value) for check, value in zip(checks, values, strict=True)])


def _check_of(column: Column) -> Check:
    check = _check_of_type(column)
    if not column.nullable:
        return check

    def or_null(value: Any) -> Any:
        return None if value is None else check(value)

    return or_null


def _check_of_type(column: Column) -> Check:
    kind = column.data_type
    if kind.int_bits:
        return _integers(-(1 << (kind.int_bits - 1)), (1 << (kind.int_bits - 1)) - 1)
    match kind.name:
        case "date" | "timestamp":
            return _times(column.type)
        case "decimal":
            return _decimals(kind.precision, kind.scale)
        case "double":
            return _double
        case "float":
            return _float
        case "string":
            return _text
    return _of_type({"bool": bool, "binary": bytes}[kind.name])


def _of_type(wanted: type) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not wanted:
            raise NotPlain
        return value

    return check


def _text(value: Any) -> Any:
    if type(value) is not str:
        raise NotPlain
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # Half of a surrogate pair is not a character.
            raise NotPlain from None
    return value


def _integers(least: int, greatest: int) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not int or not least <= value <= greatest:
            raise NotPlain
        return value

    return check


def _times(name: str) -> Check:
    integers = _integers(*RANGES[name])

    def check_date(value: Any) -> Any:
        return value.toordinal() - _DAY_0 if type(value) is date else integers(value)

    def check_timestamp(value: Any) -> Any:
        if type(value) is datetime and value.tzinfo is None:
            return (value - _TIME_0) // _MICROSECOND
        return integers(value)

    return check_date if name == "date" else check_timestamp


def _double(value: Any) -> Any:
    if type(value) is float:
        return value
    if type(value) is int and -_INTEGERS_OF_DOUBLES <= value <= _INTEGERS_OF_DOUBLES:
        return float(value)
    raise NotPlain


def _float(value: Any) -> Any:
    if type(value) is not float:
        raise NotPlain
    try:
        return _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        raise NotPlain from None


def _decimals(precision: int, scale: int) -> Check:
    unit = Decimal(1).scaleb(-scale)
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])

    def check(value: Any) -> Any:
        if type(value) is not Decimal or not value.is_finite():
            raise NotPlain
        try:
            plain = value.quantize(unit, context=exact)
        except (Inexact, InvalidOperation):
            raise NotPlain from None
        return plain if plain else plain.copy_abs()  # Arrow has no minus zero.

    return check
