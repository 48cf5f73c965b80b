"""Few rows of one call in row form: how ``insert`` of one row avoids Arrow.

:class:`RowPlans` keeps a compiled plan for each set of columns that calls bring. A plan puts a dict or a tuple into row
form. :class:`FewRows` is the result for the rows of one call and one tablet; it becomes a ``RowBatch`` only where
somebody needs columns, which is when rows fail or are sent again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from stelae.client.row_input import KEY_ONLY, layout_of_names
from stelae.rows.operations import ROW_FORM_ROWS_MAX
from stelae.rows.row_form import NotPlain, RowForm
from stelae.spi.errors import SchemaMismatch
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Layout, Schema
from stelae.spi.write import OpKind

SHAPES_MAX = 256
"""Plans that are kept for a table; a program that brings more sets of columns compiles some again."""


class FewRows:
    """Rows of one layout in row form."""

    def __init__(self, layout: Layout, rows: Sequence[tuple[Any, ...]]) -> None:
        self.layout = layout
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def batch(self) -> RowBatch:
        """The rows as a batch; built when it is first asked for."""
        return RowBatch.from_equal_rows(self.layout, self.rows)


class RowPlan(NamedTuple):
    """How rows of one shape are taken."""

    form: RowForm
    names: tuple[str, ...] | None  #: Of the columns of a dict, in the order of the layout; ``None``: rows are tuples.
    key: tuple[int, ...]  #: Positions of the key's values in a row that has been taken, in key order.

    def take(self, row: Any) -> tuple[Any, ...]:
        """Return a row in row form; ``NotPlain``: the Arrow path has to look at it."""
        if self.names is None:
            return self.form.take(row)
        if len(row) != len(self.names):
            raise NotPlain
        return self.form.take([row[name] for name in self.names])

    def key_of(self, row: tuple[Any, ...]) -> list[Any]:
        """Return the key's plain values of a row that has been taken, in key order."""
        return [row[position] for position in self.key]


class RowPlans:
    """The plans of one version of a table's schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._plans: dict[tuple[bool, OpKind, Any], RowPlan | None] = {}

    def take(self, kind: OpKind, data: Any) -> tuple[RowPlan, list[tuple[Any, ...]]] | None:
        """Put what a call brings into row form.

        Args:
            kind: of the write; deletes bring the key columns.
            data: a dict, a tuple, or a list of these.

        Returns:
            The plan and the rows in order; ``None`` if the Arrow path has to look at them: there are too many rows,
            they bring different columns, or a value needs a conversion or an explanation.
        """
        rows = data if type(data) is list else [data]
        if not 0 < len(rows) < ROW_FORM_ROWS_MAX:
            return None
        plan = self._plan(kind, rows[0])
        if plan is None:
            return None
        wanted = type(rows[0])
        try:
            return plan, [plan.take(row) if type(row) is wanted else _refuse() for row in rows]
        except (NotPlain, KeyError):
            return None

    def _plan(self, kind: OpKind, row: Any) -> RowPlan | None:
        is_dict = type(row) is dict
        if not is_dict and type(row) is not tuple:
            return None
        try:
            shape = (is_dict, kind, tuple(row) if is_dict else None)
            return self._plans[shape]
        except KeyError:
            if len(self._plans) >= SHAPES_MAX:
                self._plans.clear()
            plan = self._plans[shape] = self._compiled(kind, row if is_dict else None)
            return plan

    def _compiled(self, kind: OpKind, names: dict[Any, Any] | None) -> RowPlan | None:
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
        return RowPlan(RowForm(layout), order, tuple([ids.index(column) for column in schema.key]))


def _refuse() -> tuple[Any, ...]:
    raise NotPlain
