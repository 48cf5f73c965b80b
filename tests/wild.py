"""Draws messages of a type whose fields are of the right types and otherwise wild: they pass every codec.

``Draw`` fills any ``msgspec`` type from one source of chance: negative and huge numbers, empty and long texts, ids
that exist and ids that do not, reversed ranges, repeated elements. A field of any type also gets lists and maps that
are nested up to the depth that a codec can just read, and beyond. Tests send what it draws to running services."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import inspect

from stelae.partition.schema import PartitionSchema
from stelae.spi.schema import COLUMN_ID_MAX, VERSION_MAX

NUMBER_MIN, NUMBER_MAX = -(2**63), 2**64 - 1
"""The least and the greatest integer of msgpack."""
NUMBERS = (0, 1, 2, 3, 7, 1000, -1, -(2**31), 2**31 - 1, 2**31, 2**33, 2**62 - 1, 2**62, 2**63 - 1, 2**63)
NUMBERS += (NUMBER_MIN, NUMBER_MAX - 1, NUMBER_MAX)
TEXTS = ("", "x", "id", "text", "t", "ünïcode", "\0", "a/../b", "x" * 300, "\ud7ff", "127.0.0.1:1", "no port:x")
BYTES = (b"", b"\0", b"\xff" * 9, b"\x80" * 40, b"\x91" * 500, bytes(range(256)))
DEPTH_MAX = 6
NESTED = (2, 100, 400, 800, *range(900, 1000, 4), 100_000)
"""Depths of nested values. Python's limit is 1000 calls, of which the receiver has used some when it decodes."""


def extreme_schemas() -> list[bytes]:
    """Encoded schemas with one number at the bound of what is valid or above, or with a default that is huge or
    nested; and an encoded partition schema."""
    found = [PartitionSchema().to_bytes()]
    cases: list[tuple[int, int, Any]] = [(version, 1, None) for version in (VERSION_MAX, VERSION_MAX + 1, NUMBER_MAX)]
    cases += [(1, column_id, None) for column_id in (COLUMN_ID_MAX, COLUMN_ID_MAX + 1, NUMBER_MAX)]
    cases += [(1, 1, default) for default in (NUMBER_MAX, msgspec.Raw(b"\x91" * 950 + b"\x01"))]
    for version, column_id, default in cases:
        columns = [[column_id, "id", "int64"], [column_id - 1 or 2, "text", "int64", True, default]]
        found.append(msgspec.msgpack.encode([version, columns, [column_id]]))
    return found


class Draw:
    """A source of wild values.

    Args:
        rng: decides everything.
        texts: texts that mean something to the receiver, such as ids of its tablets and tables.
        blobs: bytes that mean something to it, such as encoded schemas.
        numbers: numbers that do, such as its term."""

    def __init__(
        self,
        rng: random.Random,
        texts: Sequence[str] = (),
        blobs: Sequence[bytes] = (),
        numbers: Sequence[int] = NUMBERS,
    ) -> None:
        self._rng = rng
        self._numbers = numbers
        self._texts = texts
        self._blobs = blobs

    def message(self, kind: Any) -> Any:
        """Return a value of a type; every struct on the way has fields of the declared types."""
        return self._value(inspect.type_info(kind), 0)

    def _pick(self, options: Sequence[Any]) -> Any:
        return options[int(self._rng.random() * len(options))]

    def _value(self, info: inspect.Type, depth: int) -> Any:
        match info:
            case inspect.IntType():
                return self._number(info)
            case inspect.FloatType():
                return self._pick((0.0, -1.5, 1e308, float("inf"), float("nan")))
            case inspect.BoolType():
                return self._rng.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.StrType():
                return self._pick(self._texts) if self._texts and self._rng.random() < 0.6 else self._pick(TEXTS)
            case inspect.BytesType():
                return self._pick(self._blobs) if self._blobs and self._rng.random() < 0.6 else self._pick(BYTES)
            case inspect.EnumType():
                return self._pick(list(info.cls))
            case inspect.LiteralType():
                return self._pick(list(info.values))
            case inspect.UnionType():
                return self._value(self._pick(info.types), depth)
            case inspect.AnyType():
                plain = (None, True, 1, -5, 2**63 - 1, NUMBER_MAX, "x", b"\xff", 1.5, [1, "x"], {"a": 1})
                return self._nested() if self._rng.random() < 0.2 else self._pick(plain)
            case inspect.TupleType():
                return tuple(self._value(item, depth + 1) for item in info.item_types)
            case inspect.CustomType() | inspect.RawType():
                return None
        return self._collection(info, depth)

    def _nested(self) -> msgspec.Raw:
        """Return the msgpack of lists or maps within each other."""
        opening = b"\x91" if self._rng.random() < 0.5 else b"\x81\xa1a"
        return msgspec.Raw(opening * self._pick(NESTED) + b"\x01")

    def _number(self, info: inspect.IntType) -> int:
        low = NUMBER_MIN if info.ge is None else info.ge
        high = NUMBER_MAX if info.le is None else info.le
        return min(max(self._pick(self._numbers if self._rng.random() < 0.5 else NUMBERS), low), high)

    def _collection(self, info: inspect.Type, depth: int) -> Any:
        count = 0 if depth > DEPTH_MAX else self._pick((0, 1, 1, 2, 3))
        match info:
            case inspect.StructType() | inspect.NamedTupleType() | inspect.DataclassType():
                return self._struct(info, depth)
            case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
                items = [self._value(info.item_type, depth + 1) for _ in range(count)]
                return tuple(items + items[:1] if self._rng.random() < 0.2 else items)
            case inspect.SetType() | inspect.FrozenSetType():
                return [self._value(info.item_type, depth + 1) for _ in range(count)]
            case inspect.DictType():
                pairs = [(self._value(info.key_type, depth + 1), self._value(info.value_type, depth + 1))]
                return dict(pairs * min(count, 1))
        raise TypeError(f"no value of {info} can be drawn")

    def _struct(self, info: inspect.StructType | inspect.NamedTupleType | inspect.DataclassType, depth: int) -> Any:
        fields = [f for f in info.fields if f.required or self._rng.random() < 0.7]
        return info.cls(**{f.name: self._value(f.type, depth + 1) for f in fields})
