"""Conversion of values for JSON and for terminals."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time
from typing import Any


def json_value(value: Any) -> Any:
    """Return the JSON form of a value: times in ISO form, bytes as base64, NaN and infinities as text.

    Null is ``None``, so that it differs from NaN. Other types become text."""
    match value:
        case float():
            return value if math.isfinite(value) else _NAMES[str(value)]
        case None | bool() | int() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case date() | datetime() | time():
            return value.isoformat()
        case dict():
            return {str(name): json_value(item) for name, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case _:
            return str(value)


def cell_text(value: Any) -> str:
    """Return one line of text for a value that is not null. Control characters are escaped, to protect the terminal."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat(sep=" ")
        case _:
            return "".join(c if c.isprintable() or c == " " else _escape(c) for c in str(value))


def _escape(character: str) -> str:
    return _ESCAPES.get(character) or character.encode("unicode_escape").decode()


_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_NAMES = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
