"""Takes a table into the catalog that is on tablet servers only: the last resort after the loss of all masters.

Source: "Permanent master failure"; ``durability.md`` rule 30. The replicas have on record what the catalog needs: the
id of the table, schemas, partitions and members. Nothing on the servers is changed. A tablet is RUNNING at once, and no
member of it may create an empty replica, because each may have acknowledged entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from stelae.partition.schema import Partition, PartitionSchema
from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.master_errors import BadChange
from stelae.protocol.master_messages import AdoptedTablet, AdoptTable
from stelae.server.master.core.alter import check_name
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.mutations import (
    Context,
    Mutation,
    check_factor,
    new_tablets,
    partitions_of,
    table_mutation,
)
from stelae.server.master.core.records import TableRecord, TabletRecord
from stelae.spi.errors import Corrupt, SchemaMismatch
from stelae.spi.ids import node_id, tablet_id
from stelae.spi.schema import COLUMN_ID_MAX, Schema


def adopt(catalog: Catalog, change: AdoptTable, context: Context) -> Mutation:
    """Return the mutation that adds a table with tablets that exist.

    Raises ``BadChange`` if the catalog knows the table or a tablet of it, or if the tablets are not distinct or do not
    fit the partitions; ``TableExists`` if another table has the name."""
    check_name(catalog, change.name)
    _check_unknown(catalog, change)
    schema, applied, scheme = _read(change, context)
    partitions = partitions_of(schema, scheme)
    missing = _missing(change, partitions)
    running = TableState.RUNNING if applied is None else TableState.ALTERING
    table = TableRecord(
        table_id=TableId(tablet_id(change.table_id)),
        name=change.name,
        state=running,
        schema=schema.to_bytes(),
        partition_schema=scheme.to_bytes(),
        replication_factor=change.replication_factor,
        consensus=tablet_id(change.consensus),
        next_column_id=change.next_column_id,
        changed_us=context.wall_us,
        fully_applied=None if applied is None else applied.to_bytes(),
        first_schemas=((schema.version, schema.to_bytes()),),
    )
    adopted = [_tablet(change, one, schema.version, context) for one in change.tablets]
    created = new_tablets(table.table_id, missing, context, schema.version)
    return table_mutation(table, (*adopted, *created), names=(change.name,))


def _tablet(change: AdoptTable, one: AdoptedTablet, version: int, context: Context) -> TabletRecord:
    return TabletRecord(
        tablet_id=one.tablet_id,
        table_id=change.table_id,
        state=TabletState.RUNNING,
        partition=one.partition,
        since_us=context.wall_us,
        config=one.config,
        first_schema=version,
        begun=tuple(member.node_id for member in one.config.members),
    )


def _check_unknown(catalog: Catalog, change: AdoptTable) -> None:
    if (known := catalog.tables.get(change.table_id)) is not None:
        raise BadChange(f"table id {change.table_id} is in the catalog already: {known.name!r}, {known.state}")
    times = Counter(one.tablet_id for one in change.tablets)
    for one in change.tablets:
        if times[one.tablet_id] > 1:
            raise BadChange(f"tablet {one.tablet_id} occurs twice in the request; a tablet has one partition")
        if (tablet := catalog.tablets.get(tablet_id(one.tablet_id))) is not None:
            raise BadChange(f"tablet {one.tablet_id} is in the catalog already, of table {tablet.table_id}")
        if not one.config.members:
            raise BadChange(f"tablet {one.tablet_id} has no members")
        for member in one.config.members:
            node_id(member.node_id)


def _read(change: AdoptTable, context: Context) -> tuple[Schema, Schema | None, PartitionSchema]:
    try:
        schema = Schema.from_bytes(change.schema)
        applied = None if change.applied is None else Schema.from_bytes(change.applied)
        scheme = PartitionSchema.from_bytes(change.partition_schema)
    except (Corrupt, SchemaMismatch) as error:
        raise BadChange(f"table {change.name!r} cannot be adopted: {error}") from error
    highest = max(column.id for one in (schema, applied or schema) for column in one.columns)
    if change.next_column_id <= highest:
        raise BadChange(f"next column id {change.next_column_id}; a column has id {highest} already")
    if change.next_column_id > COLUMN_ID_MAX + 1:
        limit = f"the highest column id is {COLUMN_ID_MAX}, so the next one is at most {COLUMN_ID_MAX + 1}"
        raise BadChange(f"next column id {change.next_column_id}: {limit}")
    check_factor(change.replication_factor, context)
    return schema, applied, scheme


def _missing(change: AdoptTable, partitions: Sequence[Partition]) -> Iterable[Partition]:
    """Return the partitions without a tablet.

    Raises ``BadChange`` if a partition has two tablets, a tablet no partition, or a partition no tablet although none
    is to be created."""
    held, known = Counter(one.partition for one in change.tablets), set(partitions)
    for one in change.tablets:
        if one.partition not in known:
            raise BadChange(f"tablet {one.tablet_id} has a partition that its table does not have")
        if held[one.partition] > 1:
            raise BadChange(f"tablet {one.tablet_id} has the same partition as another one; leave one of them out")
    missing = [one for one in partitions if one not in held]
    if missing and not change.create_missing:
        raise BadChange(f"{len(missing)} of {len(partitions)} partitions have no tablet; their rows are lost")
    return missing
