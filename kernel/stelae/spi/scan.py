"""What a reader asks of a store: columns, predicates, key range, order.

A ``ScanSpec`` travels from client to tablet as it is. Every engine judges rows as ``stelae.rows.predicate_filter``
does, so that none of them has its own idea of null, NaN or prefix; encoded keys are ``stelae.rows.keys``'."""

from enum import StrEnum
from typing import Any, Literal, TypeAlias

import msgspec


class Compare(msgspec.Struct, frozen=True, tag=True):
    """``column op value``. A null on the left is never a match; NaN only with ``!=``."""

    column: int
    op: Literal["=", "!=", "<", "<=", ">", ">="]
    value: Any


class In(msgspec.Struct, frozen=True, tag=True):
    """The column equals one of the values, as ``Compare`` has it; none of them is null."""

    column: int
    values: tuple[Any, ...]


class IsNull(msgspec.Struct, frozen=True, tag=True):
    """The column is null, or, with ``negated``, is not."""

    column: int
    negated: bool = False


class Prefix(msgspec.Struct, frozen=True, tag=True):
    """The text or bytes of the column begin with ``prefix``."""

    column: int
    prefix: Any


Predicate: TypeAlias = Compare | In | IsNull | Prefix


class Order(StrEnum):
    """In which order rows come."""

    ANY = "any"
    KEY = "key"
    KEY_DESCENDING = "key_descending"


class ScanSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to read: rows from ``key_from`` to before ``key_until`` that meet all predicates."""

    columns: tuple[int, ...] | None = None  #: Ids in the order wanted; ``None`` for all.
    predicates: tuple[Predicate, ...] = ()
    key_from: bytes | None = None  #: Encoded key; ``None``: from the first row.
    key_until: bytes | None = None  #: Encoded key; ``None``: to the last row.
    limit: int | None = None  #: Most rows that the whole scan returns.
    order: Order = Order.ANY
    after: bytes | None = None  #: Resume token: go on behind the row with this encoded key.
