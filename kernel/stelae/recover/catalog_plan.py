"""Makes tables of what tablet servers have on record: the plan by which a lost catalog is rebuilt. Pure.

Replicas have the id of their table, its schemas, their partition and their members. They do not have the name of the
table, and nothing tells whether it was dropped and could still be recalled."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import UNBOUNDED, KeyRange, Partition, PartitionSchema
from stelae.protocol.catalog_names import SYSTEM_TABLET, TableId
from stelae.protocol.master_messages import AdoptedTablet, AdoptTable
from stelae.protocol.recovery_messages import TabletFacts
from stelae.spi.errors import CallerError, Corrupt
from stelae.spi.ids import TabletId
from stelae.spi.schema import Schema


class FoundTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table that the servers have, and the catalog does not."""

    table_id: str
    name: str  #: Which it gets.
    columns: tuple[str, ...]  #: ``name type``, the key columns first.
    tablets: tuple[TabletId, ...]
    missing: int  #: Partitions of which no replica is left.
    replication_factor: int
    problems: tuple[str, ...]  #: Why it cannot be adopted; empty if it can.
    adoption: AdoptTable | None  #: The change that adopts it; ``None`` if there are problems.


class CatalogPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuilt catalog gets."""

    tables: tuple[FoundTable, ...]
    unreadable: tuple[tuple[TabletId, str], ...]  #: Tablets whose replicas have all failed, and why.


def without_leader(replicas: Iterable[TabletFacts], known: Collection[TabletId]) -> set[TabletId]:
    """Return the tablets that are not in the catalog and of which no replica leads."""
    found = [facts for facts in replicas if facts.table_id and facts.tablet_id not in known]
    return {facts.tablet_id for facts in found} - {facts.tablet_id for facts in found if facts.leads} - {SYSTEM_TABLET}


def plan_catalog(
    replicas: Iterable[TabletFacts],
    *,
    known: Collection[TabletId] = (),
    names: Mapping[str, str] | None = None,
    left_out: Collection[TabletId] = (),
    create_missing: bool = False,
) -> CatalogPlan:
    """Return the plan.

    Args:
        replicas: what each replica on each server has on record.
        known: the tablets that the catalog has.
        names: the names of tables, by table id. Other tables are called ``recovered-`` and the first eight letters of
            their id.
        left_out: tablets that are not to be adopted.
        create_missing: whether partitions without a tablet get an empty one.
    """
    by_tablet: dict[TabletId, list[TabletFacts]] = defaultdict(list)
    for facts in replicas:
        if facts.tablet_id not in known and facts.tablet_id not in left_out and facts.tablet_id != SYSTEM_TABLET:
            by_tablet[facts.tablet_id].append(facts)
    by_table: dict[str, list[TabletFacts]] = defaultdict(list)
    highest_ids: Counter[str] = Counter()
    unreadable = []
    for tablet_id, found in sorted(by_tablet.items()):
        whole = [facts for facts in found if not facts.failure and facts.table_id and facts.config is not None]
        if whole:
            best = max(whole, key=_newest)
            by_table[best.table_id].append(best)
            highest = max(facts.next_column_id for facts in whole)
            highest_ids[best.table_id] = max(highest_ids[best.table_id], highest)
        elif failed := [facts.failure for facts in found if facts.failure]:
            unreadable.append((tablet_id, failed[0]))
    tables = tuple(
        _table(table_id, tablets, highest_ids[table_id], (names or {}).get(table_id, ""), create_missing)
        for table_id, tablets in sorted(by_table.items())
    )
    return CatalogPlan(tables=tables, unreadable=tuple(unreadable))


def _newest(facts: TabletFacts) -> tuple[object, ...]:
    assert facts.config is not None
    return facts.leads, facts.config.op_id, facts.last


def _table(
    table_id: str, tablets: Sequence[TabletFacts], next_column_id: int, name: str, create_missing: bool
) -> FoundTable:
    schemas = sorted((Schema.from_bytes(facts.schema) for facts in tablets), key=lambda schema: schema.version)
    newest, oldest = schemas[-1], schemas[0]
    scheme, partitions, missing, problems = _layout(tablets, newest, create_missing)
    found = FoundTable(
        table_id=table_id,
        name=name or f"recovered-{table_id[:8]}",
        columns=tuple(f"{column.name} {column.type}" for column in newest.columns),
        tablets=tuple(facts.tablet_id for facts in tablets),
        missing=missing,
        replication_factor=_replication_factor(tablets),
        problems=tuple(problems),
        adoption=None,
    )
    if problems:
        return found
    adoption = AdoptTable(
        table_id=TableId(table_id),
        name=found.name,
        schema=newest.to_bytes(),
        applied=None if newest == oldest else oldest.to_bytes(),
        next_column_id=next_column_id,
        partition_schema=scheme.to_bytes(),
        replication_factor=found.replication_factor,
        consensus=tablets[0].consensus,
        tablets=tuple(_adopted(facts, partitions[facts.tablet_id]) for facts in tablets),
        create_missing=create_missing,
    )
    return msgspec.structs.replace(found, adoption=adoption)


def _layout(
    tablets: Sequence[TabletFacts], schema: Schema, create_missing: bool
) -> tuple[PartitionSchema, Mapping[TabletId, Partition], int, list[str]]:
    """Return the partition schema, the partition of each tablet, how many have no tablet, and what is wrong."""
    try:
        scheme, partitions = _partitions(tablets)
        missing = len(set(Partitioning(schema, scheme).partitions) - set(partitions.values()))
    except (CallerError, Corrupt) as error:
        return PartitionSchema(), {}, 0, [str(error)]
    problems = _same(partitions)
    problems += [
        f"tablet {facts.tablet_id} has no leader, so its newest schema is not known; start its servers and repeat "
        "this, or recover it first: stelae recover plan --servers HOST:PORT,..."
        for facts in tablets
        if not facts.leads
    ]
    if missing and not create_missing:
        problems.append(f"{missing} partitions have no tablet: their rows are lost, unless a lost server comes back")
    return scheme, partitions, missing, problems


def _adopted(facts: TabletFacts, partition: Partition) -> AdoptedTablet:
    assert facts.config is not None
    return AdoptedTablet(tablet_id=facts.tablet_id, partition=partition, config=facts.config)


def _partitions(tablets: Sequence[TabletFacts]) -> tuple[PartitionSchema, dict[TabletId, Partition]]:
    """Return the partition schema of the table, with the ranges of all tablets, and the partition of each tablet."""
    parts = {facts.tablet_id: _own_scheme(facts) for facts in tablets}
    first = next(iter(parts.values()))
    for tablet_id, part in parts.items():
        if (part.hash_levels, part.range_columns) != (first.hash_levels, first.range_columns):
            raise CallerError(f"tablet {tablet_id} is hashed or ranged otherwise than the other tablets of its table")
    ranges = sorted({_range(part) for part in parts.values()}, key=lambda one: one.lower)
    scheme = PartitionSchema(first.hash_levels, first.range_columns, tuple(ranges), first.version)
    return scheme, {facts.tablet_id: Partition(facts.hash_buckets, _range(parts[facts.tablet_id])) for facts in tablets}


def _own_scheme(facts: TabletFacts) -> PartitionSchema:
    return PartitionSchema.from_bytes(facts.scheme) if facts.scheme else PartitionSchema()


def _range(part: PartitionSchema) -> KeyRange:
    return part.ranges[0] if part.range_columns else UNBOUNDED


def _same(partitions: Mapping[TabletId, Partition]) -> list[str]:
    """Return the problems of partitions that have more than one tablet."""
    holders: dict[Partition, list[TabletId]] = defaultdict(list)
    for tablet_id, partition in partitions.items():
        holders[partition].append(tablet_id)
    return [
        f"tablets {' and '.join(same)} have the same partition; leave all but one of them out: --leave-out TABLET"
        for same in holders.values()
        if len(same) > 1
    ]


def _replication_factor(tablets: Sequence[TabletFacts]) -> int:
    """Return the number of voters that most tablets have, made odd: one of them may be in the middle of a change."""
    counts = Counter(len(facts.config.voters()) for facts in tablets if facts.config is not None)
    most = max(counts.values())
    usual = max(count for count, times in counts.items() if times == most)
    return max(1, usual - (usual % 2 == 0))
