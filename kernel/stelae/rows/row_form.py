"""Checks rows of Python values and puts them into row form: tuples of plain values, ready for msgpack.

A call that writes few rows must not pay for Arrow: one row of eight columns costs 400 us as a batch, and 3 us here. The
Arrow path (``to_array`` and ``RowBatch.to_rows``) defines the result. A :class:`RowForm` takes only values whose type
and range leave no doubt, and gives exactly what that path gives for them. For any other value it says so, and the
caller takes the Arrow path, which converts the value or explains what is wrong with it.

Plain values are what msgpack carries: a date is its number of days since 1970, a timestamp its number of microseconds,
a decimal a ``Decimal`` of the column's scale."""

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from struct import Struct
from typing import Any, TypeAlias

from stelae.rows.limits import RANGES
from stelae.spi.schema import Column, Layout

Check: TypeAlias = Callable[[Any], Any]
"""Returns the plain value of one value; raises :class:`NotPlain` for a value that it leaves to the Arrow path."""

_DAY_0 = date(1970, 1, 1).toordinal()
_TIME_0 = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_INTEGERS_OF_DOUBLES = 1 << 53  # Every integer up to here is a double.
_SINGLE = Struct("<f")


class NotPlain(Exception):
    """A value, or a number of values, that the Arrow path has to look at."""


class RowForm:
    """Puts rows of one layout into row form."""

    __slots__ = ("_checks", "layout")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._checks = tuple([_check_of(column) for column in layout.columns])

    def take(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return the plain values of one row, which has one value for each column, in the order of the layout.

        ``NotPlain``: another number of values, or a value that needs a conversion or an explanation."""
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
        except UnicodeEncodeError:  # Half of a surrogate pair is no character.
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
            taken = value.quantize(unit, context=exact)
        except (Inexact, InvalidOperation):
            raise NotPlain from None
        return taken if taken else taken.copy_abs()  # Arrow has no minus zero.

    return check
