"""Which type a column of a file has, judged by a sample of its values, and what a table stores it as."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from stelae.client.text_numbers import DIGITS_MAX, decimal_of
from stelae.client.text_values import all_fit, parse_text
from stelae.spi.schema import Column

KEY_COLUMNS_MAX = 4
"""Most columns of a key that is proposed."""

_FIGURE = re.compile(r"\s*[+-]?\.?\d")
"""How numbers, dates and times begin."""

_LEADING_ZERO = re.compile(r"^[+-]?0\d")


def arrow_of_texts(texts: Iterable[str | None]) -> Any:
    """Return the Arrow type that all texts have: whole number, number, truth value, day, time, else text.

    ``None`` if there is no text at all. Digits with a leading zero stay text: they are names, not numbers. Numbers that
    int64 or double would change are decimals, if all have as many digits behind the point, else text."""
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
    """Yield the types that texts may have, the closest first."""
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


def nearly(texts: Iterable[str | None]) -> tuple[str, int, int, str] | None:
    """Return the type that most texts of a column have, how many do not, of how many, and the first of those.

    ``None``: most are text, or digits with a leading zero. Each that does not fit costs time: where they are many, a
    part of the texts is looked at."""
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
    """Return the Arrow type of values as JSON has them; ``None`` if there are none but null.

    Raises:
        TypeError: a value is an object or a list, or kinds are mixed."""
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
    """The same of numbers that are no int64; those that a float would round came as decimals."""
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
    """Return the columns whose values differ in every row of a sample, and are never null."""
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
    """Return columns that tell the rows of a sample apart: one if it does so alone, else the first that do together.

    None if there are no rows, or it would take more than ``KEY_COLUMNS_MAX``."""
    alone = unique_columns(sample)
    if alone:
        return alone[:1]
    whole = [name for name, values in sample.items() if values and not any(_is_no_key(value) for value in values)]
    for count in range(2, min(len(whole), KEY_COLUMNS_MAX) + 1):
        if not repeated(sample, whole[:count]):
            return whole[:count]
    return []


def repeated(sample: Mapping[str, Sequence[Any]], key: Sequence[str]) -> int:
    """Return how many rows of a sample have a key that an earlier one has; those without a whole key have none."""
    rows = zip(*(sample[name] for name in key), strict=True)
    keys = [row for row in rows if not any(_is_no_key(value) for value in row)]
    return len(keys) - len(set(keys))


def _is_no_key(value: Any) -> bool:
    """Null, or an object or a list of JSON."""
    return value is None or isinstance(value, list | dict)
