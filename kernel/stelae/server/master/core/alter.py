"""``AlterTable``: its steps are made in order on a copy of the table. All are made, or none."""

from __future__ import annotations

import re
from typing import assert_never

import msgspec

from stelae.partition.schema import KeyRange, PartitionSchema
from stelae.protocol.master_errors import BadChange, TableExists
from stelae.protocol.master_messages import (
    AddColumn,
    AddRange,
    AlterStep,
    AlterTable,
    DropColumn,
    DropRange,
    RenameColumn,
    RenameTable,
    SetDefault,
    SetReplicas,
)
from stelae.rows.schema_change import check_change
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.mutations import Context, partitions_of
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.spi.schema import Column, Schema

STEPS_MAX = 1000
"""The most steps of one change. It limits the work of one request."""
NAME_LENGTH_MAX = 256
"""Characters of a table's name."""
ID_FORM = re.compile("[0-9a-f]{32}")
"""The form of the ids of tables."""


class Altered:
    """A table while the steps of a change are made on it.

    Args:
        table: it is RUNNING or ALTERING.
    """

    def __init__(self, catalog: Catalog, table: TableRecord) -> None:
        self._catalog = catalog
        self._table = table
        self.name = table.name
        self.columns = list(table.newest.columns)
        self.key = table.newest.key
        self.next_column_id = table.next_column_id
        self.partitioning = table.partitioning
        self.replicas = table.replication_factor
        self.dropped: set[KeyRange] = set()  #: The ranges that lose their rows, also if a later step adds them again.

    def take(self, change: AlterTable) -> None:
        """Make all steps.

        Raises ``BadChange``, ``TableExists``, ``SchemaMismatch`` or ``BadPartitioning`` if one of them is not
        possible."""
        if not 1 <= len(change.steps) <= STEPS_MAX:
            raise BadChange(f"{len(change.steps)} steps; a change has 1 to {STEPS_MAX}")
        for step in change.steps:
            self._take(step)
        if self.schema_changed:
            # Each step may be valid alone, while every tablet would refuse all of them together.
            check_change(self._table.newest, self.schema())

    @property
    def schema_changed(self) -> bool:
        """Whether the tablets must get a new schema."""
        return tuple(self.columns) != self._table.newest.columns

    @property
    def ranges_changed(self) -> bool:
        """Whether tablets are added or removed."""
        return bool(self.dropped) or self.partitioning != self._table.partitioning

    def schema(self) -> Schema:
        """The schema after the steps. It has the next version if the steps changed it."""
        before = self._table.newest
        return Schema(before.version + 1, tuple(self.columns), self.key) if self.schema_changed else before

    def _take(self, step: AlterStep) -> None:
        match step:
            case AddColumn():
                self._add_column(step)
            case DropColumn():
                place = self._place(step.name)
                if self.columns[place].id in self.key:
                    raise BadChange(f"column {step.name!r} is of the key, which never changes: it cannot be dropped")
                del self.columns[place]
            case RenameColumn():
                self._replace(self._place(step.name), name=step.to)
            case SetDefault():
                self._replace(self._place(step.name), default=step.default)
            case RenameTable():
                check_name(self._catalog, step.to, besides=self._table.name)
                self.name = step.to
            case SetReplicas():
                self.replicas = step.count
            case AddRange():
                self._set_ranges((*self.partitioning.ranges, step.range))
            case DropRange():
                self._drop_range(step.range)
            case _:
                assert_never(step)

    def _add_column(self, step: AddColumn) -> None:
        column = Column(
            id=self.next_column_id, name=step.name, type=step.type, nullable=step.nullable, default=step.default
        )
        if column.required:
            raise BadChange(
                f"rows that exist have no value for column {step.name!r}: make it nullable, or give a default"
            )
        self.columns.append(column)
        self.next_column_id += 1
        self._check()

    def _replace(self, place: int, **changes: object) -> None:
        self.columns[place] = msgspec.structs.replace(self.columns[place], **changes)
        self._check()

    def _check(self) -> None:
        Schema(1, tuple(self.columns), self.key)

    def _place(self, name: str) -> int:
        names = [column.name for column in self.columns]
        if name not in names:
            raise BadChange(f"table {self.name!r} has no column {name[:80]!r}; it has: {', '.join(names)[:1000]}")
        return names.index(name)

    def _drop_range(self, dropped: KeyRange) -> None:
        left = tuple(one for one in self.partitioning.ranges if one != dropped)
        if len(left) == len(self.partitioning.ranges):
            raise BadChange(f"{describe_range(dropped)} is none of the {len(left)} ranges of table {self.name!r}")
        if not left:
            raise BadChange(f"the last range of table {self.name!r} cannot be dropped: delete the table")
        self._set_ranges(left)
        if dropped in self._table.partitioning.ranges:
            self.dropped.add(dropped)

    def _set_ranges(self, ranges: tuple[KeyRange, ...]) -> None:
        before = self.partitioning
        in_order = tuple(sorted(ranges, key=lambda one: one.lower))
        self.partitioning = PartitionSchema(before.hash_levels, before.range_columns, in_order, before.version)


def split_tablets(
    altered: Altered, tablets: list[TabletRecord], schema: Schema, context: Context
) -> tuple[list[TabletRecord], list[int]]:
    """Return the tablets whose partition was removed, and the numbers of the partitions without a tablet.

    The tablets of a range that was dropped and added again are removed: the range begins empty."""
    partitions = partitions_of(schema, altered.partitioning)
    count, limit = len(partitions), context.settings.tablets_per_table_max
    if count > limit:
        raise BadChange(f"{count} tablets; a table has at most {limit} (tablets_per_table_max)")
    wanted = {one for one in partitions if one.range not in altered.dropped}
    kept = {tablet.partition for tablet in tablets} & wanted
    gone = [tablet for tablet in tablets if tablet.partition not in wanted]
    return gone, [place for place, partition in enumerate(partitions) if partition not in kept]


def check_name(catalog: Catalog, name: str, besides: str | None = None) -> None:
    """Check the name of a table.

    Raises ``BadChange`` if it is not valid, ``TableExists`` if a table other than ``besides`` has it. The form of an id
    is not valid: requests name a table by either, and one table's name must never be another one's id."""
    if not 1 <= len(name) <= NAME_LENGTH_MAX or not name.isprintable() or name != name.strip():
        what = f"a table cannot be called {name[:80]!r}"
        raise BadChange(f"{what}: 1 to {NAME_LENGTH_MAX} printable characters, no space at either end")
    if ID_FORM.fullmatch(name):
        raise BadChange(f"a table cannot be called {name!r}: 32 hexadecimal digits are the form of a table's id")
    if name != besides and name in catalog.names:
        raise TableExists(name)


def describe_range(one: KeyRange) -> str:
    """Return a range as text, for messages."""
    upper = "the greatest" if one.upper is None else one.upper.hex()
    return f"the range from {one.lower.hex() or 'the least'} to {upper}"
