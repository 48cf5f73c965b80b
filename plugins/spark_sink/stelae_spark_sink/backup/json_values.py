"""Values of columns as JSON, exactly. Pure.

JSON has no decimals, dates, times, bytes and no ``NaN``. They are text, and the type of the column says which."""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from stelae.spi.schema import data_type

_EPOCH = datetime(1970, 1, 1)


def to_json(kind: str, value: Any) -> Any:
    """Return a value of a column as JSON.

    Args:
        kind: the type of the column.
        value: a value in Python, or the plain value of a date or a timestamp, which is a number; or ``None``.
    """
    if value is None:
        return None
    match data_type(kind).name:
        case "float" | "double":
            return value if math.isfinite(value) else str(float(value))
        case "decimal":
            return str(value)
        case "binary":
            return base64.b64encode(value).decode()
        case "date":
            return (value if isinstance(value, date) else (_EPOCH + timedelta(days=value)).date()).isoformat()
        case "timestamp":
            when = value if isinstance(value, datetime) else _EPOCH + timedelta(microseconds=value)
            return (when if when.tzinfo is None else when.astimezone(UTC).replace(tzinfo=None)).isoformat()
    return value


def from_json(kind: str, value: Any) -> Any:
    """Return the value of a column that :func:`to_json` returned as JSON. A timestamp is a ``datetime`` without a zone,
    in UTC.

    Raises:
        ValueError: the value is not of the column.
    """
    if value is None:
        return None
    try:
        match data_type(kind).name:
            case "float" | "double":
                return float(value)
            case "decimal":
                return Decimal(value)
            case "binary":
                return base64.b64decode(value, validate=True)
            case "date":
                return date.fromisoformat(value)
            case "timestamp":
                return datetime.fromisoformat(value)
    except (TypeError, ArithmeticError, ValueError):
        raise ValueError(f"{value!r:.60} is no value of type {kind}") from None
    return value
