"""Carries out ``stelae table alter``, ``rename`` and ``recall``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stelae.cli.kit.errors import EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.masters_target import MastersTarget
from stelae.cli.replicas_wait import until_replicated
from stelae.cli.run_table import describe_plainly, read_column, read_value
from stelae.client import AsyncClient
from stelae.client.catalog import CatalogClient
from stelae.client.counted import counted
from stelae.client.replica_counts import ReplicaCounts
from stelae.client.table_definition import range_of
from stelae.partition.schema import KeyRange, PartitionSchema
from stelae.protocol.catalog_names import TableState
from stelae.protocol.master_errors import BadChange
from stelae.protocol.master_messages import (
    AddColumn,
    AddRange,
    AlterStep,
    DropColumn,
    DropRange,
    RenameColumn,
    RenameTable,
    SetDefault,
    SetReplicas,
    TableDescription,
    TableList,
)
from stelae.spi.errors import CallerError
from stelae.spi.schema import Column, Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterOptions:
    """The options of ``stelae table alter``, unparsed. The steps are in the order of the fields."""

    add: Sequence[str] = ()
    drop: Sequence[str] = ()
    rename: Sequence[str] = ()
    default: Sequence[str] = ()
    no_default: Sequence[str] = ()
    add_range: Sequence[str] = ()
    drop_range: Sequence[str] = ()
    replicas: int | None = None


def run_alter(
    cluster: MastersTarget,
    name: str,
    wanted: AlterOptions,
    *,
    wait_s: float | None = None,
    progress: bool | None = None,
    as_json: bool,
) -> int:
    """Change a table by all steps or none, wait until every tablet has changed, and return the exit code.

    ``wait_s``: the longest wait for the replicas of its tablets after that; ``None``: none."""

    async def run() -> tuple[TableDescription, ReplicaCounts | None]:
        async with cluster.masters() as (client, catalog):
            changed = await _changed(cluster, client, catalog, name, lambda found: steps_of(wanted, found))
            if wait_s is None:
                return changed, None
            with StatusLine(progress) as line:
                counts = await until_replicated(client, catalog, changed, line, wait_s)
            return await catalog.get_table(changed.name, timeout_s=cluster.timeout_s), counts

    return _print(name, *asyncio.run(run()), as_json=as_json)


def run_rename(cluster: MastersTarget, name: str, to: str, *, as_json: bool) -> int:
    """Rename a table and return the exit code."""

    async def run() -> TableDescription:
        async with cluster.masters() as (client, catalog):
            return await _changed(cluster, client, catalog, name, lambda found: [RenameTable(to=to)])

    return _print(name, asyncio.run(run()), as_json=as_json)


def run_recall(cluster: MastersTarget, table: str, name: str | None, *, as_json: bool) -> int:
    """Recall a dropped table and return the exit code."""

    async def run() -> dict[str, Any]:
        async with cluster.masters() as (client, catalog):
            listed = await catalog.list_tables(soft_deleted=True, timeout_s=cluster.timeout_s)
            found = dropped_table(listed, table)
            back = await client.recall_table(found, name=name, timeout_s=cluster.timeout_s)
            return describe_plainly(await catalog.get_table(back.name, timeout_s=cluster.timeout_s))

    made = asyncio.run(run())
    if as_json:
        print_json(made)
    else:
        note(f"recalled {made['name']} with {counted(len(made['tablets']), 'tablet')}")
    return EXIT_OK


def dropped_table(listed: TableList, table: str) -> str:
    """Return the id of the dropped table with this name or id. ``BadChange``: there is none, or there are several."""
    dropped = [one for one in listed.tables if one.state is TableState.SOFT_DELETED]
    found = [one.table_id for one in dropped if table in (one.name, one.table_id)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{one.name} ({one.table_id})" for one in dropped) or "none"
    several = f"{len(found)} dropped tables have the name {table!r}; pass an id"
    fact = several if found else f"no dropped table {table!r}"
    raise BadChange(f"{fact}; tables that can be recalled: {known}"[:2000])


def steps_of(wanted: AlterOptions, table: TableDescription) -> list[AlterStep]:
    """Return the steps that the options describe. ``CallerError``: an option is malformed."""
    schema, scheme = Schema.from_bytes(table.schema), PartitionSchema.from_bytes(table.partition_schema)
    steps: list[AlterStep] = [_add(text) for text in wanted.add]
    steps += [DropColumn(name=text) for text in wanted.drop]
    steps += [
        RenameColumn(name=old, to=new) for old, new in (_pair(t, ":", "--rename takes OLD:NEW") for t in wanted.rename)
    ]
    steps += [_set_default(schema, text) for text in wanted.default]
    steps += [SetDefault(name=text, default=None) for text in wanted.no_default]
    steps += [AddRange(range=read_range(schema, scheme, text)) for text in wanted.add_range]
    steps += [DropRange(range=read_range(schema, scheme, text)) for text in wanted.drop_range]
    steps += [] if wanted.replicas is None else [SetReplicas(count=wanted.replicas)]
    if not steps:
        options = "--add, --drop, --rename, --default, --no-default, --add-range, --drop-range or --replicas"
        raise CallerError(f"nothing to change; pass {options}")
    return steps


def read_range(schema: Schema, scheme: PartitionSchema, text: str) -> KeyRange:
    """Parse ``FROM..UNTIL``. Either bound may be empty. With several range columns, a bound is a list with commas."""
    columns = [schema.by_id[column_id] for column_id in scheme.range_columns]
    lower, upper = _pair(text, "..", "a range has the form FROM..UNTIL", both=False)
    return range_of(schema, scheme, _bound(columns, lower), _bound(columns, upper))


def _bound(columns: Sequence[Column], text: str) -> list[Any] | None:
    if not text:
        return None
    parts = text.split(",") if len(columns) > 1 else [text]
    if len(parts) != len(columns):
        raise CallerError(
            f"a bound needs a value for each of {', '.join(c.name for c in columns) or 'no column'}, not {text!r}"
        )
    return [read_value(column, part) for column, part in zip(columns, parts, strict=True)]


def _add(text: str) -> AddColumn:
    """Parse ``NAME:TYPE`` or ``NAME:TYPE=DEFAULT``. A column with a default is not nullable."""
    return AddColumn(**read_column("--add", text))


def _set_default(schema: Schema, text: str) -> SetDefault:
    name, value = _pair(text, "=", "--default takes COLUMN=VALUE")
    column = schema.by_name.get(name)
    if column is None:
        raise CallerError(f"no column {name!r} for --default; the table has: {', '.join(schema.by_name)}"[:2000])
    return SetDefault(name=name, default=read_value(column, value))


def _pair(text: str, mark: str, form: str, *, both: bool = True) -> tuple[str, str]:
    first, found, second = text.partition(mark)
    if not found or (both and not (first and second)):
        raise CallerError(f"{form}, not {text!r}")
    return first, second


async def _changed(
    cluster: MastersTarget,
    client: AsyncClient,
    catalog: CatalogClient,
    name: str,
    steps: Callable[[TableDescription], list[AlterStep]],
) -> TableDescription:
    before = await catalog.get_table(name, timeout_s=cluster.timeout_s)
    table = await client.alter_table(name, *steps(before), timeout_s=cluster.timeout_s)
    return await catalog.get_table(table.name, timeout_s=cluster.timeout_s)


def _print(name: str, table: TableDescription, counts: ReplicaCounts | None = None, *, as_json: bool) -> int:
    made = describe_plainly(table)
    if as_json:
        print_json(made)
        return EXIT_OK
    renamed = "" if made["name"] == name else f", renamed to {made['name']}"
    size = counted(len(made["tablets"]), "tablet")
    note(f"changed {name}{renamed}: schema version {made['schema_version']}, {size}")
    if counts is not None:
        note(f"{made['name']}: {counts}")
    return EXIT_OK
