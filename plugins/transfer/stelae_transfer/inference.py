"""Inference of column types and key columns from a sample of the values of a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from stelae.client.text_numbers import DIGITS_MAX, decimal_of
from stelae.client.text_values import all_fit, parse_text
from stelae.spi.schema import Column

KEY_COLUMNS_MAX = 4
"""Most columns of a proposed key."""

_FIGURE = re.compile(r"\s*[+-]?\.?\d")
"""Matches the beginning of a number, a date or a time."""

_LEADING_ZERO = re.compile(r"\s*[+-]?0\d")
"""Matches the beginning of digits with a leading zero. Spaces before a number are ignored when it is parsed."""


def arrow_of_texts(texts: Iterable[str | None]) -> Any:
    """Return the first Arrow type that fits all texts: int64, double, decimal, bool, date, timestamp, otherwise string.

    Returns ``None`` if there is no text at all. Digits with a leading zero are strings: they are names, not numbers.
    Numbers that int64 or double would change are decimals if all of them have the same number of digits after the
    point, otherwise strings."""
    import pyarrow as pa

    present = [text for text in texts if text is not None]
    if not present:
        return None
    raw = pa.array([text.encode() for text in present], pa.binary())
    for name in _candidates(present):
        column = Column(id=1, name="c", type=name, nullable=True)
        if all_fit(column, raw):
            return column.data_type.arrow()
    return pa.string()


def _candidates(present: Sequence[str]) -> Iterator[str]:
    """Yield the types that the texts may have, the most specific first."""
    if not any(_LEADING_ZERO.match(text) for text in present):
        is_whole = all(text.strip().lstrip("+-").isdecimal() for text in present)
        yield "int64" if is_whole else "double"
        if decimal := _decimal(present):
            yield decimal
        if is_whole:
            return
    if all(text.strip().lower() in ("true", "false") for text in present):
        yield "bool"
    yield "date"
    yield "timestamp"


def _decimal(present: Sequence[str]) -> str:
    try:
        found = decimal_of([Decimal(text.strip()) for text in present], one_scale=True)
    except InvalidOperation:
        return ""
    return f"decimal({DIGITS_MAX},{found})" if found is not None else ""


def nearest_type(texts: Iterable[str | None]) -> tuple[str, int, int, str] | None:
    """Return the type that most texts of a column have, how many texts do not fit it, how many were examined, and the
    first text that does not fit.

    Returns ``None`` if most texts are words, or digits with a leading zero. A text that does not fit takes time, so
    only the first texts are examined if many do not fit."""
    present = [text for text in texts if text is not None]
    if 2 * sum(bool(_FIGURE.match(text)) for text in present) <= len(present):
        return None
    best: tuple[str, int, int, str] | None = None
    for name in ("int64", "double", "date", "timestamp"):
        if name in ("int64", "double") and any(_LEADING_ZERO.match(text) for text in present):
            continue
        for count in (20, 1000, len(present)):
            some = present[:count]
            bad = _unfit(name, some)
            if len(bad) * 50 > len(some):
                break
        if bad and 2 * len(bad) < len(some) and (best is None or len(bad) * best[2] < best[1] * len(some)):
            best = name, len(bad), len(some), some[bad[0]]
    return best


def _unfit(name: str, texts: Sequence[str]) -> list[int]:
    import pyarrow as pa

    raw = pa.array([text.encode(errors="surrogateescape") for text in texts], pa.binary())
    return sorted(parse_text(Column(id=1, name="c", type=name, nullable=True), raw).bad)


def arrow_of_values(values: Iterable[Any]) -> Any:
    """Return the Arrow type of JSON values, or ``None`` if all of them are null.

    Raises:
        TypeError: a value is an object or a list, the values are of several kinds, or a number is too large. The
            message completes the sentence "column 'x' has ..."."""
    import pyarrow as pa

    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if not kinds:
        return None
    if kinds == {bool}:
        return pa.bool_()
    if kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in present):
        return pa.int64()
    if kinds <= {int, float, Decimal}:
        return _arrow_of_numbers(present)
    if kinds == {str}:
        found = arrow_of_texts(present)
        return found if pa.types.is_date(found) or pa.types.is_timestamp(found) else pa.string()
    raise TypeError(f"values of the kinds {', '.join(sorted(kind.__name__ for kind in kinds))}")


def _arrow_of_numbers(numbers: Sequence[int | float | Decimal]) -> Any:
    """Return the Arrow type of numbers that are not all int64. Numbers that a double would round are ``Decimal``."""
    import pyarrow as pa

    def is_double(number: int | float | Decimal) -> bool:
        return isinstance(number, float) or (isinstance(number, int) and abs(number) <= 1 << 53)

    wide = [number for number in numbers if not is_double(number)]
    if not wide:
        return pa.float64()
    scale = decimal_of([Decimal(str(number)) for number in numbers], one_scale=False)
    if scale is None:
        raise TypeError(f"numbers that neither a double nor {DIGITS_MAX} digits hold, such as {wide[0]!s:.60}")
    return pa.decimal128(DIGITS_MAX, scale)


def unique_columns(sample: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the columns whose values are unique in a sample and never null."""
    found = []
    for name, values in sample.items():
        try:
            distinct = set(values)
        except TypeError:
            continue
        if values and None not in distinct and len(distinct) == len(values):
            found.append(name)
    return found


def unique_key(sample: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return columns whose values identify the rows of a sample.

    That is one unique column, otherwise the first columns that are unique together. Returns an empty list if there are
    no rows, or if a key would need more than ``KEY_COLUMNS_MAX`` columns."""
    alone = unique_columns(sample)
    if alone:
        return alone[:1]
    usable = [name for name, values in sample.items() if values and not any(_is_no_key(value) for value in values)]
    for count in range(2, min(len(usable), KEY_COLUMNS_MAX) + 1):
        if not repeated_keys(sample, usable[:count]):
            return usable[:count]
    return []


def repeated_keys(sample: Mapping[str, Sequence[Any]], key: Sequence[str]) -> int:
    """Return how many rows of a sample have the key of an earlier row. Rows with a null in the key are not counted."""
    rows = zip(*(sample[name] for name in key), strict=True)
    keys = [row for row in rows if not any(_is_no_key(value) for value in row)]
    return len(keys) - len(set(keys))


def _is_no_key(value: Any) -> bool:
    """Return whether a value cannot be in a key: null, or an object or a list of JSON."""
    return value is None or isinstance(value, list | dict)
