"""Parses the texts of options. Each function raises ``ValueError`` with what it expects."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, get_args

from stelae.client.arguments import Compression
from stelae.client.epoch import EPOCH_MAX
from stelae.client.times import hybrid
from stelae.spi.errors import StelaeError
from stelae.spi.ids import source_id
from stelae.spi.write import OpKind

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)i?b?", re.IGNORECASE)
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_TIME_EXPECTED = "a time with a zone, such as 2026-06-01T12:00:00Z, or the timestamp of a write"

SIZE_BYTES_MIN = 1 << 20
"""The least size of a part of a table: the client accepts no smaller one."""

SIZE_BYTES_MAX = 1 << 50
"""The greatest size of a part of a table, which is larger than any tablet."""

SECONDS_MAX = 3600.0
"""The longest time for which a task may retry."""


def name(text: str) -> str:
    """Return a name."""
    if not text.strip():
        raise ValueError("a name")
    return text.strip()


def addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of ``host:port,host:port``."""
    found = tuple(address.strip() for address in text.split(",") if address.strip())
    if not found or not all(re.fullmatch(r"\S+:\d{1,5}", address) for address in found):
        raise ValueError("host:port,host:port")
    return found


def names(text: str) -> tuple[str, ...]:
    """Return the names of ``a,b`` or ``["a", "b"]``; only the second form can have commas in names."""
    expected = 'names such as a,b or ["a", "b"]'
    listed = [one.strip() for one in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError(expected) from None
    if not listed or not all(isinstance(one, str) and one for one in listed):
        raise ValueError(expected)
    if len({*listed}) != len(listed):
        raise ValueError(f"each name once, in {expected}")
    return tuple(listed)


def filters(text: str) -> tuple[tuple[Any, ...], ...]:
    """Return the filters of a JSON list of ``[column, operation, value]``, or of one such list, as in JSON."""
    expected = 'filters such as [["celsius", ">", 20.5], ["note", "is null"]]'
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(expected) from None
    if isinstance(listed, list) and listed and isinstance(listed[0], str):
        listed = [listed]
    if not isinstance(listed, list) or not all(isinstance(one, list) and 2 <= len(one) <= 3 for one in listed):
        raise ValueError(expected)
    if not all(isinstance(word, str) for one in listed for word in one[:2]):
        raise ValueError(expected)
    return tuple(tuple(one) for one in listed)


def some_filters(text: str) -> tuple[tuple[Any, ...], ...]:
    """Return at least one filter; see :func:`filters`."""
    found = filters(text)
    if not found:
        raise ValueError("at least one filter")
    return found


def seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= SECONDS_MAX:
        raise ValueError(f"a number of seconds above 0, at most {SECONDS_MAX:g}")
    return found


def size_bytes(text: str) -> int:
    """Return the bytes of ``1048576``, ``128m`` or ``1g``."""
    found = _SIZE.fullmatch(text.strip())
    size = 0 if found is None else int(found[1]) << _SHIFTS[found[2].lower()]
    if not SIZE_BYTES_MIN <= size <= SIZE_BYTES_MAX:
        raise ValueError("a number of bytes from 1m, such as 134217728, 128m or 1g")
    return size


def time(text: str) -> int:
    """Return the hybrid timestamp of a time with a zone, or of digits, which are a hybrid timestamp already."""
    try:
        stripped = text.strip()
        given = int(stripped) if stripped.isdecimal() and len(stripped) > 8 else datetime.fromisoformat(stripped)
        if isinstance(given, datetime) and given.tzinfo is None:
            raise ValueError(_TIME_EXPECTED)
        return hybrid(given)
    except ValueError:
        raise ValueError(_TIME_EXPECTED) from None
    except StelaeError as error:
        raise ValueError(f"{_TIME_EXPECTED}; {error}") from None


def feed_place(text: str) -> int | str:
    """Return the hybrid timestamp of a time, or the text of a position of a change feed, which is JSON."""
    return text if text.lstrip().startswith("{") else time(text)


def count(text: str) -> int:
    """Return a whole number from 1."""
    stripped = text.strip()
    if not stripped.isdecimal() or not 0 < int(stripped) < 1 << 63:
        raise ValueError("a whole number from 1")
    return int(stripped)


def operation(text: str) -> OpKind:
    """Return the kind of write of ``upsert`` or ``insert-ignore``; ``_`` and ``-`` mean the same."""
    found = OpKind.__members__.get(text.strip().replace("-", "_").upper())
    if found is None:
        raise ValueError(f"one of {', '.join(kind.name.lower() for kind in OpKind)}")
    return found


def compression(text: str) -> Compression:
    """Return the compression that ``none`` or ``lz4`` names."""
    known: tuple[Compression, ...] = get_args(Compression)
    for one in known:
        if one == text.strip().lower():
            return one
    raise ValueError(f"one of {', '.join(known)}")


def source(text: str) -> str:
    """Return the name of a source."""
    try:
        return source_id(text.strip())
    except StelaeError as error:
        raise ValueError(str(error)) from None


def epoch(text: str) -> int:
    """Return the number of an epoch."""
    try:
        found = int(text)
    except ValueError:
        found = -1
    if not 0 <= found <= EPOCH_MAX:
        raise ValueError("an integer from 0 to 2**63 - 2")
    return found


def boolean(text: str) -> bool:
    """Return the truth value of ``true`` or ``false``."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise ValueError("true or false")
    return found
