"""Changes of tables: makes one mutation of a request and a snapshot, or raises an error with the next step.

Each function here is the second step of the source's contract. It is pure: it reads ``Catalog`` and ``Context`` and
does not change them. The steps around it are the same for every change (``stelae.server.master.core.operations``)."""

from __future__ import annotations

from typing import assert_never

import msgspec

from stelae.partition.schema import PartitionSchema
from stelae.protocol.catalog_names import TableId, TableState
from stelae.protocol.master_errors import BadChange, NoTable, TableBusy, TooFewServers
from stelae.protocol.master_messages import (
    AdoptTable,
    AlterTable,
    Change,
    ChangeReply,
    CreateTable,
    DeleteTable,
    RecallTable,
    SetServerMode,
)
from stelae.server.master.core.adopt import adopt
from stelae.server.master.core.alter import Altered, check_name, split_tablets
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.locks import LockRequest
from stelae.server.master.core.mutations import (
    Context,
    Mutation,
    check_factor,
    draw_id,
    move_table,
    move_tablet,
    new_tablets,
    partitions_of,
    table_mutation,
)
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.server.master.core.states import TableCause, TabletCause
from stelae.spi.errors import Corrupt, SchemaMismatch, Unavailable
from stelae.spi.ids import tablet_id as checked_id
from stelae.spi.schema import Schema


def plan_change(catalog: Catalog, change: Change, context: Context) -> Mutation:
    """Return the mutation of a change.

    Raises ``CallerError`` if it is not possible, ``RetryableError`` if it is not possible now."""
    match change:
        case CreateTable():
            return _create(catalog, change, context)
        case AlterTable():
            return _alter(catalog, change, context)
        case DeleteTable():
            return _delete(catalog, change, context)
        case RecallTable():
            return _recall(catalog, change, context)
        case SetServerMode():
            return _set_mode(catalog, change)
        case AdoptTable():
            return adopt(catalog, change, context)
        case _:
            assert_never(change)


def find_table(catalog: Catalog, table: str) -> TableRecord:
    """Return the table that clients see under this name or id. Raises ``NoTable`` if there is none."""
    found = catalog.table_named(table) or catalog.tables.get(TableId(table))
    if found is None or found.state in (TableState.SOFT_DELETED, TableState.REMOVED):
        raise NoTable(table, catalog.names)
    return found


def _create(catalog: Catalog, change: CreateTable, context: Context) -> Mutation:
    check_name(catalog, change.name)
    schema, partition_schema = _read_schemas(change, context)
    partitions = partitions_of(schema, partition_schema)
    _check_limits(catalog, change, len(partitions), context)
    table = TableRecord(
        table_id=TableId(draw_id(context.rng)),
        name=change.name,
        state=TableState.RUNNING,
        schema=schema.to_bytes(),
        partition_schema=partition_schema.to_bytes(),
        replication_factor=change.replication_factor,
        consensus=checked_id(change.consensus),
        next_column_id=max(column.id for column in schema.columns) + 1,
        changed_us=context.wall_us,
        first_schemas=((schema.version, schema.to_bytes()),),
    )
    tablets = new_tablets(table.table_id, partitions, context, schema.version)
    return table_mutation(table, tablets, names=(change.name,))


def _read_schemas(change: CreateTable, context: Context) -> tuple[Schema, PartitionSchema]:
    try:
        schema = Schema.from_bytes(change.schema)
        context.limits.check_schema(schema)
        partition_schema = PartitionSchema.from_bytes(change.partition_schema)
    except (Corrupt, SchemaMismatch) as error:
        raise BadChange(f"table {change.name!r} cannot be created: {error}") from error
    if schema.version != 1:
        raise BadChange(f"a new table begins with schema version 1, not {schema.version}")
    return schema, partition_schema


def _check_limits(catalog: Catalog, change: CreateTable, tablets: int, context: Context) -> None:
    settings, factor = context.settings, change.replication_factor
    check_factor(factor, context)
    if tablets > settings.tablets_per_table_max:
        limit = settings.tablets_per_table_max
        raise BadChange(f"{tablets} tablets; a table has at most {limit} (tablets_per_table_max)")
    if len(catalog.names) >= settings.tables_max:
        raise BadChange(f"there are {len(catalog.names)} tables already, the most allowed (tables_max)")
    _check_servers(factor, context)
    _check_burden(tablets, factor, context)


def _check_servers(factor: int, context: Context) -> None:
    """Check that there are enough live servers for the replicas of one tablet.

    Raises ``TooFewServers`` if there are not, ``Unavailable`` if this master may not have heard from all servers
    yet."""
    if context.servers_live < factor:
        fact = f"{factor} replicas need {factor} live tablet servers; this master hears {context.servers_live}"
        if not context.warm:
            raise Unavailable(f"{fact}, and has just started: ask again")
        raise TooFewServers(f"{fact}: start more, or ask for fewer replicas")


def _check_burden(tablets: int, factor: int, context: Context) -> None:
    """Raise ``BadChange`` if the change would create more replicas at once than the servers can create while they serve
    the existing ones."""
    limit, live = context.settings.create_replicas_per_server_max, context.servers_live
    each = -(-tablets * factor // live)
    if each > limit:
        fact = f"{tablets} tablets of {factor} replicas are {each} on each of {live} live tablet servers"
        allowed = f"a new table may bring {limit} (create_replicas_per_server_max)"
        most = limit * live // factor
        raise BadChange(f"{fact}; {allowed}: up to {most} tablets now, and more ranges later, or more servers")


def _alter(catalog: Catalog, change: AlterTable, context: Context) -> Mutation:
    table = find_table(catalog, change.table)
    altered = Altered(catalog, table)
    altered.take(change)
    schema = altered.schema()
    if altered.schema_changed:
        _check_settled(table)
    context.limits.check_schema(schema, table.newest)
    if altered.replicas != table.replication_factor:
        check_factor(altered.replicas, context)
        if altered.replicas > table.replication_factor:
            _check_servers(altered.replicas, context)
    structural = altered.schema_changed or altered.ranges_changed
    moved = move_table(table, TableCause.ALTER if structural else TableCause.RENAME, context.wall_us)
    after = msgspec.structs.replace(
        moved,
        name=altered.name,
        replication_factor=altered.replicas,
        schema=schema.to_bytes(),
        partition_schema=altered.partitioning.to_bytes(),
        next_column_id=altered.next_column_id,
        fully_applied=table.visible.to_bytes() if structural else table.fully_applied,
    )
    tablets: list[TabletRecord] = []
    if altered.ranges_changed:
        live = catalog.live_tablets(table.table_id)
        gone, places = split_tablets(altered, live, schema, context)
        partitions = partitions_of(schema, altered.partitioning)
        tablets = [move_tablet(tablet, TabletCause.DROPPED, context.wall_us) for tablet in gone]
        tablets += new_tablets(table.table_id, [partitions[place] for place in places], context, schema.version)
        left = {t.first_schema for t in live} - {0}
        firsts = {v: data for v, data in table.first_schemas if v in left} | {schema.version: schema.to_bytes()}
        after = msgspec.structs.replace(after, first_schemas=tuple(sorted(firsts.items())))
    names = (altered.name, table.name) if altered.name != table.name else ()
    return table_mutation(after, tablets, names=names)


def _check_settled(table: TableRecord) -> None:
    """Raise ``TableBusy`` if a tablet may not have the newest schema yet.

    A tablet applies the versions in order, and the catalog has only the newest. After a second change, a tablet that
    has not applied the first one could apply neither."""
    version = table.newest.version
    if version > table.visible.version:
        fact = f"table {table.name!r} is being altered to schema version {version}, which not every tablet has yet"
        raise TableBusy(f"{fact}; ask again")


def _delete(catalog: Catalog, change: DeleteTable, context: Context) -> Mutation:
    keep_us = change.keep_ms * 1000
    if not 0 <= change.keep_ms <= context.settings.soft_delete_ms_max:
        limit = context.settings.soft_delete_ms_max
        raise BadChange(f"keep_ms is {change.keep_ms}: from 0, which deletes at once, to {limit} (soft_delete_ms_max)")
    if keep_us:
        table = find_table(catalog, change.table)
        moved = move_table(table, TableCause.SOFT_DELETE, context.wall_us)
        return table_mutation(msgspec.structs.replace(moved, purge_us=context.wall_us + keep_us))
    soft = catalog.tables.get(TableId(change.table))
    if soft is None or soft.state is not TableState.SOFT_DELETED:
        soft = find_table(catalog, change.table)
    return removal(catalog, soft, TableCause.DELETE, context.wall_us)


def removal(catalog: Catalog, table: TableRecord, cause: TableCause, wall_us: int) -> Mutation:
    """Return the mutation that removes a table and all of its tablets in one batch."""
    live = catalog.live_tablets(table.table_id)
    gone = [move_tablet(tablet, TabletCause.DROPPED, wall_us) for tablet in live]
    return table_mutation(move_table(table, cause, wall_us), gone)


def _recall(catalog: Catalog, change: RecallTable, context: Context) -> Mutation:
    table = catalog.tables.get(change.table_id)
    if table is None or table.state is not TableState.SOFT_DELETED:
        soft = [t.table_id for t in catalog.tables.values() if t.state is TableState.SOFT_DELETED]
        state = "is unknown" if table is None else f"is {table.state}"
        raise BadChange(f"table id {change.table_id[:80]!r} {state}; can be recalled: {', '.join(soft[:20]) or 'none'}")
    name = change.name or table.name
    check_name(catalog, name)
    moved = move_table(table, TableCause.RECALL, context.wall_us)
    after = msgspec.structs.replace(moved, name=name, purge_us=0, fully_applied=table.visible.to_bytes())
    return table_mutation(after, names=(name,))


def _set_mode(catalog: Catalog, change: SetServerMode) -> Mutation:
    server = catalog.servers.get(change.node_id)
    if server is None:
        known = ", ".join(sorted(catalog.servers)) or "none"
        raise BadChange(f"no tablet server {change.node_id[:80]!r} is on record; there are: {known}"[:2000])
    after = msgspec.structs.replace(server, mode=change.mode)
    locks = LockRequest(write=(f"server/{server.node_id}",))
    return Mutation(batch=CatalogBatch(puts=(after,)), locks=locks, answer=ChangeReply(table_id=None))
