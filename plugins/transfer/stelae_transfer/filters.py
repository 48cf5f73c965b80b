"""Parsers of filters, keys and times that are typed on a command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from stelae.client.filters import BadFilter
from stelae.client.row_input import unknown_columns
from stelae.client.text_values import parse_text
from stelae.spi.errors import CallerError
from stelae.spi.schema import Column, Schema

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*")
    | (?P<sign><=|>=|!=|<>|==|=|<|>|\(|\)|,)
    | (?P<word>[^\s'"<>=!(),]+)
    )""",
    re.VERBOSE,
)
_SIGNS = ("=", "==", "!=", "<>", "<", "<=", ">", ">=")
_EXAMPLE = "for example: celsius > 20.5 and station in ('Bergen', 'Oslo') and note is null"
_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)(?:\s+ago)?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_where(schema: Schema, text: str) -> list[tuple[Any, ...]]:
    """Parse a condition such as ``a > 1 and b in ('x', 'y')`` into filters of the client.

    Column names may be in double quotes. Text values must be in single quotes. Empty text gives no filter.

    Raises:
        BadFilter: the text is not a condition on columns of the schema; with what was expected."""
    return list(_Parser(schema, text).filters()) if text.strip() else []


def read_time(text: str, now: datetime) -> int | datetime:
    """Parse the time of ``--at`` or ``--since``: ``2026-06-01T12:00``, ``5m`` (ago), or a hybrid timestamp.

    A time without a zone is returned without one, and is local time then. The offset of the present time would be wrong
    for a time before the clocks were last changed.

    Args:
        text: the text of the option.
        now: the present time, with a time zone.

    Raises:
        CallerError: the text has none of these forms."""
    stripped = text.strip()
    ago = _AGO.fullmatch(stripped)
    try:
        if ago:
            return now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        if stripped.isdigit() and len(stripped) > 8:
            return int(stripped)
        return datetime.fromisoformat(stripped)
    except (ValueError, OverflowError) as error:
        examples = "pass one such as 2026-06-01T12:00, 5m (ago), or the timestamp of a write"
        raise CallerError(f"cannot read the time {text!r}; {examples}") from error


def read_key(schema: Schema, words: list[str]) -> dict[str, Any]:
    """Parse the values of a key, one argument for each key column, in key order."""
    columns = schema.key_layout.columns
    if len(words) != len(columns):
        names = ", ".join(f"{column.name} ({column.type})" for column in columns)
        values = "one value" if len(columns) == 1 else f"{len(columns)} values"
        order = ", as separate arguments in this order" if len(columns) > 1 else ""
        raise CallerError(f"the key is {names}: pass {values}, not {len(words)}{order}")
    return {column.name: read_value(column, word) for column, word in zip(columns, words, strict=True)}


def read_value(column: Column, text: str) -> Any:
    """Parse one value of a column. ``BadFilter``: the text is not a value of its type."""
    import pyarrow as pa

    found = parse_text(column, pa.array([text.encode(errors="surrogateescape")], pa.binary()))
    if found.bad:
        raise BadFilter(found.bad[0])
    return found.array[0].as_py()


class _Parser:
    def __init__(self, schema: Schema, text: str) -> None:
        self._schema = schema
        self._text = text
        self._tokens = list(self._read())
        self._position = 0

    def _read(self) -> Iterator[tuple[str, str]]:
        at, text = 0, self._text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise self._wrong(f"cannot parse {text[at : at + 20]!r}")
            at = found.end()
            body = found[found.lastgroup]
            quote = body[0] if found.lastgroup in ("text", "name") else ""
            yield found.lastgroup, body[1:-1].replace(quote * 2, quote) if quote else body

    def filters(self) -> Iterator[tuple[Any, ...]]:
        yield self._filter()
        while self._position < len(self._tokens):
            self._word("and")
            yield self._filter()

    def _filter(self) -> tuple[Any, ...]:
        kind, name = self._next("a column")
        column = self._schema.by_name.get(name)
        if kind not in ("word", "name") or column is None:
            raise BadFilter(unknown_columns(self._schema, [name]))
        kind, op = self._next("an operator")
        op = op.lower()
        if kind == "sign" and op in _SIGNS:
            return name, op, self._value(column)
        if kind == "word" and op == "is":
            negated = self._next("null")[1].lower()
            if negated == "not":
                self._word("null")
                return name, "is not null"
            self._position -= 1
            self._word("null")
            return name, "is null"
        if kind == "word" and op == "in":
            return name, "in", self._values(column)
        if kind == "word" and op == "starts":
            self._word("with")
            return name, "starts with", self._value(column)
        known = ", ".join(_SIGNS)
        operators = f"{known}, in, is null, is not null, starts with"
        raise self._wrong(f"unknown operator {op!r} after {name!r}; known operators: {operators}")

    def _values(self, column: Column) -> list[Any]:
        self._sign("(")
        found = [self._value(column)]
        while self._next("',' or ')'")[1] == ",":
            found.append(self._value(column))
        self._position -= 1
        self._sign(")")
        return found

    def _value(self, column: Column) -> Any:
        kind, text = self._next("a value")
        if kind == "word" and column.data_type.name in ("string", "binary"):
            raise self._wrong(f"put text in single quotes: {column.name} ... '{text}'")
        if kind not in ("text", "word"):
            raise self._wrong(f"expected a value of {column.name!r}, got {text!r}")
        if kind == "text" and column.type == "binary":
            return text.encode()
        return read_value(column, text)

    def _next(self, expected: str) -> tuple[str, str]:
        if self._position >= len(self._tokens):
            raise self._wrong(f"expected {expected} at the end")
        self._position += 1
        return self._tokens[self._position - 1]

    def _word(self, expected: str) -> None:
        kind, text = self._next(repr(expected))
        if kind != "word" or text.lower() != expected:
            more = "; use 'or' in `stelae sql`" if text.lower() == "or" else ""
            raise self._wrong(f"expected {expected!r}, got {text!r}{more}")

    def _sign(self, expected: str) -> None:
        kind, text = self._next(repr(expected))
        if kind != "sign" or text != expected:
            raise self._wrong(f"expected {expected!r}, got {text!r}")

    def _wrong(self, fact: str) -> BadFilter:
        return BadFilter(f"--where {self._text!r:.200}: {fact}; {_EXAMPLE}")
