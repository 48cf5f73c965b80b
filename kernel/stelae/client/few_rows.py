"""Checks and converts a few rows without Arrow, which makes writes of single rows fast.

:class:`RowConverters` keeps a compiled converter for each shape of row, that is, for each kind of write and set of
columns. A converter turns a dict or a tuple into row form (``stelae.rows.row_form``). :class:`FewRows` holds the
converted rows of one call, or of one tablet. It becomes a ``RowBatch`` only when rows fail or are sent again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from stelae.client.row_input import KEY_ONLY, layout_of_names
from stelae.rows.operation_encoding import ROW_FORM_ROWS_MAX
from stelae.rows.row_form import NotPlain, RowForm
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.write import OpKind

SHAPES_MAX = 256
"""The most converters that are kept for a table. A program that uses more shapes compiles converters again."""


class FewRows:
    """Rows in row form, all with the same layout."""

    def __init__(self, layout: Layout, rows: Sequence[tuple[Any, ...]]) -> None:
        self.layout = layout
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def batch(self) -> RowBatch:
        """The rows as an Arrow batch, built on first use."""
        return RowBatch.from_equal_rows(self.layout, self.rows)


class RowConverter(NamedTuple):
    """Converts rows of one shape into row form."""

    form: RowForm
    names: tuple[str, ...] | None  #: Names of the columns of a dict, in layout order; ``None``: rows are tuples.
    key: tuple[int, ...]  #: Positions of the key's values in a converted row, in key order.

    def convert(self, row: Any) -> tuple[Any, ...]:
        """Return a row in row form.

        Raises:
            NotPlain: the row needs the Arrow path.
            KeyError: a dict lacks one of the columns; the row needs the Arrow path.
        """
        if self.names is None:
            return self.form.take(row)
        if len(row) != len(self.names):
            raise NotPlain
        return self.form.take([row[name] for name in self.names])

    def key_of(self, row: tuple[Any, ...]) -> list[Any]:
        """Return the plain key values of a converted row, in key order."""
        return [row[position] for position in self.key]


class RowConverters:
    """The converters for one version of a table's schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._converters: dict[tuple[bool, OpKind, Any], RowConverter | None] = {}

    def convert(self, kind: OpKind, data: Any) -> tuple[RowConverter, list[tuple[Any, ...]]] | None:
        """Convert the rows of a call into row form.

        Args:
            kind: of the write; rows of deletes have the key columns.
            data: a dict, a tuple, or a list of these.

        Returns:
            The converter and the rows in order. ``None``: the rows need the Arrow path, because there are too many,
            their columns differ, or a value needs a conversion or an error message.
        """
        rows = data if type(data) is list else [data]
        if not 0 < len(rows) < ROW_FORM_ROWS_MAX:
            return None
        converter = self._converter(kind, rows[0])
        if converter is None:
            return None
        row_type = type(rows[0])
        try:
            return converter, [converter.convert(row) if type(row) is row_type else _refuse() for row in rows]
        except (NotPlain, KeyError):
            return None

    def _converter(self, kind: OpKind, row: Any) -> RowConverter | None:
        is_dict = type(row) is dict
        if not is_dict and type(row) is not tuple:
            return None
        try:
            shape = (is_dict, kind, tuple(row) if is_dict else None)
            return self._converters[shape]
        except KeyError:
            if len(self._converters) >= SHAPES_MAX:
                self._converters.clear()
            converter = self._converters[shape] = self._compiled(kind, row if is_dict else None)
            return converter

    def _compiled(self, kind: OpKind, names: dict[Any, Any] | None) -> RowConverter | None:
        schema, key_only = self._schema, kind in KEY_ONLY
        layout = schema.key_layout if key_only else schema.layout
        if names is not None:
            if any(name not in schema.by_name for name in names):
                return None
            if key_only and any(schema.by_name[name].id not in schema.key for name in names):
                return None
            try:
                layout = layout_of_names(schema, kind, names)
            except SchemaMismatch:
                return None
        ids = layout.ids
        order = tuple(column.name for column in layout.columns) if names is not None else None
        return RowConverter(RowForm(layout), order, tuple([ids.index(column) for column in schema.key]))


def _refuse() -> tuple[Any, ...]:
    raise NotPlain
