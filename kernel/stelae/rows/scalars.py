"""Single values of numpy, pandas and pyarrow as plain Python values.

The values of ``frame.iloc[0]`` are not of the types ``int`` and ``datetime``. A single value is accepted if its column
would accept it in a frame. Its type may change, its meaning may not: a value that would lose something is returned
unchanged, and the check of types refuses it later. This module imports none of the libraries; it uses the methods of
the value."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from stelae.spi.schema import Column

_PLAIN = frozenset({type(None), bool, int, str, bytes})
"""Types that every column uses as they are."""

_OWN = frozenset({float, Decimal, date, datetime})
"""Types of Python that some columns convert."""

_NUMPY_KINDS = "biufSU"
"""Kinds of numpy types whose ``item()`` is a plain value with the same meaning. Time spans are not among them."""

_FINER = ("[ns]", "[ps]", "[fs]", "[as]")


def plain_scalar(column: Column, value: Any) -> Any:
    """Return a value as its column takes it, or unchanged if that would lose something. A missing value is ``None``."""
    if type(value) in _PLAIN:
        return value
    plain, kind = value if type(value) in _OWN else _unwrapped(value), column.data_type
    if type(plain) is float and kind.int_bits:
        return int(plain) if plain.is_integer() else value
    if kind.name == "date" and isinstance(plain, datetime):
        naive = plain if plain.tzinfo is None else _in_utc(plain)
        return naive.date() if naive is not None and naive.time() == time() else value
    if kind.name == "date" and type(plain) is int:
        return value  # A time that Python has no ``datetime`` for: these are microseconds, not days.
    if kind.name == "timestamp" and type(plain) is date:
        return datetime.combine(plain, time())
    return plain


def whole_microseconds(value: Any) -> Any:
    """Return a time without its nanoseconds, and any other value unchanged."""
    if not has_nanoseconds(value):
        return value
    return value.floor("us") if hasattr(value, "floor") else value.astype("datetime64[us]")


def has_nanoseconds(value: Any) -> bool:
    """Return true if a value is a time of pandas or numpy with a fraction of a microsecond."""
    family = _family(value)
    if family == "pandas":
        return hasattr(value, "to_pydatetime") and getattr(value, "nanosecond", 0) > 0
    if family == "numpy" and _kind(value) == "M":
        return str(value.dtype).endswith(_FINER) and value == value and not _is_whole(value)
    return False


def _unwrapped(value: Any) -> Any:
    """Return the plain value of a library's scalar, and any other value unchanged."""
    family = _family(value)
    if family == "pyarrow" and hasattr(value, "as_py"):
        try:
            inner = value.as_py()
        except (ValueError, OverflowError):
            return value
        return inner if _family(inner) == "pyarrow" else _unwrapped(inner)
    if family == "numpy":
        return _of_numpy(value)
    return _of_pandas(value) if family == "pandas" else value


def _of_numpy(value: Any) -> Any:
    kind = _kind(value)
    if kind == "M":
        if value != value:
            return None
        return value.astype("datetime64[us]").item() if _is_whole(value) else value
    return value.item() if kind and kind in _NUMPY_KINDS else value


def _of_pandas(value: Any) -> Any:
    if type(value).__name__ in ("NaTType", "NAType"):
        return None
    if not hasattr(value, "to_pydatetime") or has_nanoseconds(value):
        return value
    try:
        return value.to_pydatetime(warn=False)
    except (ValueError, OverflowError):
        return value


def _kind(value: Any) -> str:
    """Return the kind of a numpy scalar's type; an empty text for an array or any other value."""
    return getattr(value.dtype, "kind", "") if getattr(value, "shape", None) == () else ""


def _is_whole(value: Any) -> bool:
    """Return true if a ``datetime64`` is a whole number of microseconds in the range of 64 bits."""
    return bool(value.astype("datetime64[us]").astype(value.dtype) == value)


def _in_utc(value: datetime) -> datetime | None:
    try:
        return value.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _family(value: Any) -> str:
    return type(value).__module__.partition(".")[0]
