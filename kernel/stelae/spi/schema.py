"""Schemas: the columns of a tablet's rows, their types, and their primary key.

A schema is immutable and has a version. Its bytes are the body of a ``SCHEMA`` entry, which is durable before the first
row of that version. Below the client, a column is known by its id. An id is never reused, so renaming a column changes
no data.

*Plain values* are the values of rows in Python without Arrow: ``bool``, ``int``, ``float``, ``str``, ``bytes``,
``Decimal``, a date as days and a timestamp as microseconds since 1970-01-01 UTC."""

import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any

import msgspec

from stelae.spi.errors import Corrupt, SchemaMismatch

COLUMNS_MAX = 2000  #: The most columns of any schema. The setting of a cluster is lower.
NAME_LENGTH_MAX = 256  #: The longest column name, in characters.
COLUMN_ID_MAX = 2**31 - 1  #: The highest id of a column.
VERSION_MAX = 2**31 - 1  #: The highest version of a schema.

_INT_BYTES = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}
_WIDTH_BYTES = {"bool": 1, **_INT_BYTES, "float": 4, "double": 8, "string": 8, "binary": 8}
_WIDTH_BYTES |= {"date": 4, "timestamp": 8}
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")


class DataType(msgspec.Struct, frozen=True):
    """A parsed column type. ``precision`` and ``scale`` are numbers of digits, for ``decimal`` only."""

    name: str
    precision: int = 0
    scale: int = 0

    @property
    def width_bytes(self) -> int:
        """The bytes of one value in a batch, without the contents of strings and binaries."""
        return _WIDTH_BYTES.get(self.name, 16)

    @property
    def int_bits(self) -> int:
        """The bits of an integer type; 0 for other types."""
        return 8 * _INT_BYTES.get(self.name, 0)

    def arrow(self) -> Any:
        """Return the ``pyarrow.DataType``."""
        import pyarrow as pa

        if self.name == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.name == "timestamp":
            return pa.timestamp("us")
        alias = {"float": "float32", "double": "float64", "date": "date32"}
        return pa.type_for_alias(alias.get(self.name, self.name))


@lru_cache(maxsize=1024)
def data_type(text: str) -> DataType:
    """Parse a type such as ``int64`` or ``decimal(12,2)``. Raises ``SchemaMismatch`` if it is unknown."""
    if text in _WIDTH_BYTES:
        return DataType(text)
    if (found := _DECIMAL.fullmatch(text)) and 1 <= int(found[1]) <= 38 and int(found[2]) <= int(found[1]):
        return DataType("decimal", int(found[1]), int(found[2]))
    known = ", ".join(_WIDTH_BYTES)
    raise SchemaMismatch(f"unknown column type {text[:40]!r}; known: {known}, decimal(p,s) with s <= p <= 38")


class Column(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One column."""

    id: int  #: 1 to ``COLUMN_ID_MAX``. It is permanent and never reused within a table.
    name: str  #: Unique within a schema, 1 to ``NAME_LENGTH_MAX`` characters.
    type: str  #: A type that :func:`data_type` can parse.
    nullable: bool = False  #: Whether the value may be null. A key column is not nullable.
    #: The plain value of rows that have no value for this column (a decimal as text); ``None``: there is no default.
    default: Any = None

    def __post_init__(self) -> None:
        if self.default != self.default:
            # NaN differs from itself, and a column must equal its copies: comparisons take one object for equal.
            msgspec.structs.force_setattr(self, "default", math.nan)

    @property
    def data_type(self) -> DataType:
        """The parsed type."""
        return data_type(self.type)

    @property
    def required(self) -> bool:
        """Whether a new row must have a value for this column."""
        return not self.nullable and self.default is None


class Layout(msgspec.Struct, frozen=True, dict=True):
    """The columns of a batch, in order: all columns of a schema or some of them."""

    columns: tuple[Column, ...]

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """The column ids, in order."""
        return tuple(column.id for column in self.columns)

    @cached_property
    def arrow(self) -> Any:
        """The ``pyarrow.Schema``; computed once."""
        import pyarrow as pa

        return pa.schema([pa.field(c.name, c.data_type.arrow(), c.nullable) for c in self.columns])

    @cached_property
    def struct(self) -> Any:
        """The columns as one ``pyarrow`` struct type."""
        import pyarrow as pa

        return pa.struct(list(self.arrow))

    @cached_property
    def row_bytes_min(self) -> int:
        """The bytes of a row in a batch, without the contents of strings and binaries."""
        return sum(column.data_type.width_bytes for column in self.columns)


class Schema(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """The columns and the primary key of one version. Constructing an invalid schema raises ``SchemaMismatch``."""

    version: int  #: 1 to ``VERSION_MAX``. It rises with every change.
    columns: tuple[Column, ...]  #: 1 to ``COLUMNS_MAX`` columns, in the order that users see.
    key: tuple[int, ...]  #: The ids of the key columns, in key order: at least one, none of them nullable.

    def __post_init__(self) -> None:
        if not 1 <= self.version <= VERSION_MAX or not 1 <= len(self.columns) <= COLUMNS_MAX:
            what = f"version {self.version} with {len(self.columns)} columns"
            raise SchemaMismatch(f"{what}: expected a version of 1 to {VERSION_MAX} and 1 to {COLUMNS_MAX} columns")
        for column in self.columns:
            _check_column(column)
        ids, names = zip(*((column.id, column.name) for column in self.columns), strict=True)
        for what, values in (("column id", ids), ("column name", names), ("key column", self.key)):
            if len(set(values)) != len(values):
                raise SchemaMismatch(f"a {what} occurs twice in the schema: {values!r}"[:400])
        if not self.key or not set(self.key) <= set(ids):
            raise SchemaMismatch(f"the key {self.key!r} must name one or more of the columns")
        for column in self.project(self.key).columns:
            if column.nullable:
                raise SchemaMismatch(f"key column {column.name!r} must not be nullable")

    @cached_property
    def layout(self) -> Layout:
        """All columns."""
        return Layout(self.columns)

    @cached_property
    def key_layout(self) -> Layout:
        """The key columns, in key order."""
        return self.project(self.key)

    @cached_property
    def by_id(self) -> Mapping[int, Column]:
        """The columns by id."""
        return {column.id: column for column in self.columns}

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def _projections(self) -> dict[tuple[int, ...], Layout]:
        return {}

    def project(self, ids: Iterable[int] | None) -> Layout:
        """Return the layout of the columns with these ids, in that order, or of all columns with ``None``.

        Raises ``SchemaMismatch`` if an id is unknown or occurs twice."""
        if ids is None:
            return self.layout
        wanted = tuple(ids)
        if (found := self._projections.get(wanted)) is None:
            if len(set(wanted)) != len(wanted) or not set(wanted) <= set(self.by_id):
                known = f"schema version {self.version}; it has {sorted(self.by_id)!r}"
                raise SchemaMismatch(f"columns {wanted[:20]!r} are not distinct columns of {known}")
            found = Layout(tuple(self.by_id[i] for i in wanted))
            if len(self._projections) < 64:
                self._projections[wanted] = found
        return found

    def to_bytes(self) -> bytes:
        """Return the body of a ``SCHEMA`` entry."""
        return _ENCODER.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Schema":
        """Decode the bytes of :meth:`to_bytes`. Raises ``Corrupt`` if they are not a schema."""
        try:
            return _DECODER.decode(data)
        except (ValueError, SchemaMismatch, RecursionError) as error:
            raise Corrupt(f"not a schema: {error}") from error


def _check_column(column: Column) -> None:
    if not 1 <= column.id <= COLUMN_ID_MAX or not 1 <= len(column.name) <= NAME_LENGTH_MAX:
        what, most = f"column {column.name[:80]!r} with id {column.id}", f"1 to {NAME_LENGTH_MAX} characters"
        raise SchemaMismatch(f"{what}: expected an id of 1 to {COLUMN_ID_MAX} and a name of {most}")
    kind = column.data_type
    if column.default is not None and type(column.default) not in _DEFAULT_TYPES[kind.name]:
        raise SchemaMismatch(f"column {column.name!r}: the default {column.default!r:.40} is not a plain {column.type}")


_DEFAULT_TYPES: dict[str, tuple[type, ...]] = {"bool": (bool,), "string": (str,), "binary": (bytes,), "decimal": (str,)}
_DEFAULT_TYPES |= dict.fromkeys((*_INT_BYTES, "date", "timestamp"), (int,))
_DEFAULT_TYPES |= dict.fromkeys(("float", "double"), (float, int))
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Schema)
