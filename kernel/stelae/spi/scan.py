"""The specification of a scan: columns, predicates, key range and order.

A client sends a ``ScanSpec`` to a tablet, which passes it to its store unchanged. Every engine matches rows as
``stelae.rows.predicate_filter`` does, so that null, NaN and prefixes mean the same everywhere. ``stelae.rows.keys``
encodes keys."""

from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec


class Compare(msgspec.Struct, frozen=True, tag=True):
    """``column op value``. A null in the column never matches. A NaN matches only with ``!=``."""

    column: int
    op: Literal["=", "!=", "<", "<=", ">", ">="]
    value: Any


class In(msgspec.Struct, frozen=True, tag=True):
    """The column equals one of the values, as in ``Compare``. None of the values is null."""

    column: int
    values: tuple[Any, ...]


class IsNull(msgspec.Struct, frozen=True, tag=True):
    """The column is null; with ``negated``, it is not null."""

    column: int
    negated: bool = False


class Prefix(msgspec.Struct, frozen=True, tag=True):
    """The text or bytes of the column begin with ``prefix``."""

    column: int
    prefix: Any


Predicate: TypeAlias = Compare | In | IsNull | Prefix


class Order(StrEnum):
    """The order of the rows."""

    ANY = "any"
    KEY = "key"
    KEY_DESCENDING = "key_descending"


class ScanSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to read: the rows with ``key_from <= key < key_until`` that match all predicates."""

    columns: tuple[int, ...] | None = None  #: Column ids, in the order of the result; ``None``: all columns.
    predicates: tuple[Predicate, ...] = ()
    key_from: bytes | None = None  #: An encoded key; ``None``: from the first row.
    key_until: bytes | None = None  #: An encoded key; ``None``: to the last row.
    limit: int | None = None  #: The most rows that the whole scan returns.
    order: Order = Order.ANY
    after: bytes | None = None  #: Resume token: continue after the row with this encoded key.
