"""Parses text as values of a column, an array at a time, and finds the positions where the text is not a value.

No value is guessed, and only 32-bit floats are rounded. A number that does not fit, a day that does not exist, and
digits that would be lost are failures."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from math import inf, isfinite
from typing import Any

from stelae.client.arrow_fit import Fitted, failing_positions
from stelae.client.text_numbers import SAFE_CHARACTERS, keeps
from stelae.spi.schema import Column

_EXACT = float(1 << 53)
"""Below it, a double represents every whole number exactly."""

SHOWN_CHARACTERS = 60
"""The most characters of a value in the reason why it failed."""


def parse_text(column: Column, raw: Any) -> Fitted:
    """Parse a ``pyarrow`` array of bytes as values of a column. Null stays null.

    Spaces around a value are ignored, except in string columns. Whole numbers may be written as ``130.0``. Values of
    binary columns are base64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts, bad = _decoded(column, raw)
    name = column.data_type.name
    if name == "string":
        return Fitted(texts, bad)
    if name == "binary":
        return _from_base64(column, texts, bad)
    trimmed = pc.utf8_trim_whitespace(texts)
    result, unparsed = None, trimmed
    for attempt in _attempts(column):
        found, failed = _each(attempt, unparsed, column.data_type.arrow())
        result = found if result is None else pc.coalesce(result, found)
        if not failed:
            break
        unparsed = _only(trimmed, failed)
    else:
        bad |= {position: _misfit(column, texts[position].as_py()) for position in failed}
    assert isinstance(result, pa.Array)
    if column.type == "double" and (changed := _changed(trimmed, result)):
        result, bad = _without(result, changed), bad | {p: _misfit(column, texts[p].as_py()) for p in changed}
    return Fitted(result, bad)


def all_fit(column: Column, raw: Any) -> bool:
    """Return whether one way of parsing fits all values of an array. It is fast also if no value can be parsed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for attempt in _attempts(column):
        try:
            texts = pc.utf8_trim_whitespace(raw.cast(pa.string()))
            values = attempt(texts, column.data_type.arrow())
        except (pa.ArrowException, ValueError):
            continue
        return column.type != "double" or not _changed(texts, values)
    return False


def _misfit(column: Column, text: str) -> str:
    return f"column {column.name!r}: expected {column.type}, got {text[:SHOWN_CHARACTERS]!r}{_rounded(column, text)}"


def _rounded(column: Column, text: str) -> str:
    """Return what a double would round a number to, if rounding is the reason why the number failed."""
    try:
        value = float(text) if column.type == "double" else inf
    except ValueError:
        return ""
    if not isfinite(value):
        return ""
    nearest = int(value) if text.strip(" +-").isdecimal() else value
    return f", which a double rounds to {str(nearest)[:SHOWN_CHARACTERS]}"


def _decoded(column: Column, raw: Any) -> tuple[Any, dict[int, str]]:
    import pyarrow as pa

    def is_text(start: int, count: int) -> bool:
        try:
            raw.slice(start, count).cast(pa.string())
        except pa.ArrowInvalid:
            return False
        return True

    positions = failing_positions(len(raw), is_text)
    bad = dict.fromkeys(positions, f"column {column.name!r}: expected {column.type}, got bytes that are not UTF-8")
    return (_without(raw, positions) if positions else raw).cast(pa.string()), bad


def _each(attempt: Callable[[Any, Any], Any], texts: Any, target: Any) -> tuple[Any, list[int]]:
    """Parse what one way of parsing fits; return the values, null elsewhere, and the positions that failed."""
    import pyarrow as pa

    def works(start: int, count: int) -> bool:
        try:
            attempt(texts.slice(start, count), target)
        except (pa.ArrowException, ValueError):
            return False
        return True

    failed = failing_positions(len(texts), works)
    return attempt(_without(texts, failed) if failed else texts, target), failed


def _attempts(column: Column) -> Sequence[Callable[[Any, Any], Any]]:
    kind = column.data_type
    return _ATTEMPTS.get("int" if kind.int_bits else kind.name, (_direct,))


def _direct(texts: Any, target: Any) -> Any:
    return texts.cast(target)


def _zoned(texts: Any, target: Any) -> Any:
    import pyarrow as pa

    return texts.cast(pa.timestamp("us", "UTC")).cast(target)


def _finer(texts: Any, target: Any) -> Any:
    """Parse times with nanoseconds; they must be whole microseconds."""
    import pyarrow as pa

    return texts.cast(pa.timestamp("ns")).cast(target)


def _whole(texts: Any, target: Any) -> Any:
    """Parse whole numbers such as ``130.0`` that a double represents exactly."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = texts.cast(pa.float64())
    if pc.any(pc.greater_equal(pc.abs(values), _EXACT)).as_py() or _changed(texts, values):
        raise ValueError("beyond what a double represents exactly")
    return values.cast(target)


def _unsigned(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.replace_substring_regex(texts, pattern=r"^\+([0-9.])", replacement=r"\1")


def _digits(texts: Any, target: Any) -> Any:
    """Parse whole numbers in decimal digits. Arrow would also take hexadecimal ones; but ``0x10`` may be an id."""
    import pyarrow.compute as pc

    if pc.any(pc.match_substring(texts, "x", ignore_case=True)).as_py():
        raise ValueError("not decimal digits")
    return texts.cast(target)


def _signed(texts: Any, target: Any) -> Any:
    return _digits(_unsigned(texts), target)


def _finite(texts: Any, target: Any) -> Any:
    """Parse floats. A number that is too large fails: only a written infinity may become one."""
    import pyarrow.compute as pc

    values = _unsigned(texts).cast(target)
    written = pc.match_substring_regex(texts, pattern=r"(?i)^[+-]?inf(inity)?$")
    if pc.any(pc.and_not(pc.is_inf(values), written)).as_py():
        raise ValueError("out of range")
    return values


def _changed(texts: Any, values: Any) -> list[int]:
    """Return the positions of doubles that do not represent the text. Only long numbers and numbers with an exponent
    need the check."""
    import pyarrow.compute as pc

    is_odd = pc.or_(pc.greater(pc.utf8_length(texts), SAFE_CHARACTERS), pc.match_substring_regex(texts, "[eE]"))
    odd = pc.indices_nonzero(pc.and_(is_odd, pc.not_equal(values.cast(texts.type), texts)))
    pairs = zip(odd.to_pylist(), texts.take(odd).to_pylist(), values.take(odd).to_pylist(), strict=True)
    return [position for position, text, value in pairs if not keeps(text, value)]


_ATTEMPTS: dict[str, Sequence[Callable[[Any, Any], Any]]] = {
    "int": (_digits, _signed, _whole),
    "float": (_finite,),
    "double": (_finite,),
    "timestamp": (_direct, _zoned, _finer),
}


def _from_base64(column: Column, texts: Any, bad: dict[int, str]) -> Fitted:
    import pyarrow as pa

    found: list[bytes | None] = []
    for position, text in enumerate(texts.to_pylist()):
        try:
            found.append(None if text is None else base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            found.append(None)
            bad[position] = f"{_misfit(column, text)}, which is not base64"
    return Fitted(pa.array(found, pa.binary()), bad)


def _mask(count: int, positions: Sequence[int]) -> Any:
    import pyarrow as pa

    mask = [False] * count
    for position in positions:
        mask[position] = True
    return pa.array(mask, pa.bool_())


def _without(array: Any, positions: Sequence[int]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(_mask(len(array), positions), pa.scalar(None, array.type), array)


def _only(array: Any, positions: Sequence[int]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(_mask(len(array), positions), array, pa.scalar(None, array.type))
