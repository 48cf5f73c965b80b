"""A planned change as a value: its records, its locks, and its answer if it commits.

Planning reads a snapshot, makes such a value, and changes nothing. So a change whose replication fails needs no
undo, and a reader never sees a state between two snapshots."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec

from stelae.partition.partitioning import Partitioning
from stelae.partition.schema import Partition, PartitionSchema
from stelae.protocol.catalog_names import TableId, TableState, TabletState
from stelae.protocol.master_errors import BadChange
from stelae.protocol.master_messages import ChangeOutcome, ChangeReply
from stelae.rows.limits import DEFAULTS, LimitSettings
from stelae.server.master.core.batches import CatalogBatch
from stelae.server.master.core.locks import LockRequest
from stelae.server.master.core.records import Record, TableRecord, TabletRecord
from stelae.server.master.core.states import TABLE_MOVES, TABLET_MOVES, TableCause, TabletCause
from stelae.server.master.settings import MasterSettings
from stelae.spi.errors import TooLarge
from stelae.spi.ids import TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.schema import Schema

_FORGOTTEN = Partition()


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of planning besides the catalog."""

    wall_us: int
    settings: MasterSettings
    limits: LimitSettings = DEFAULTS
    servers_live: int
    warm: bool  #: Whether this master has been up long enough to have heard from every live server.
    rng: random.Random


class Mutation(msgspec.Struct, frozen=True, kw_only=True):
    """The batch, the locks and the answer of one logical operation."""

    batch: CatalogBatch
    locks: LockRequest
    answer: ChangeOutcome | None = None  #: The answer to the client; ``None``: no client asked for it.

    def check_size(self, settings: MasterSettings) -> Mutation:
        """Return the mutation. Raises ``TooLarge`` if it does not fit one batch: operations are never split."""
        size = self.batch.size_bytes
        if size > settings.batch_bytes_max:
            what = f"this change of {len(self.batch.keys)} records, which must be one batch (take it in several steps),"
            raise TooLarge(what, size, settings.batch_bytes_max)
        return self


def draw_id(rng: random.Random) -> str:
    """Draw an id: 32 random hexadecimal digits."""
    return f"{rng.getrandbits(128):032x}"


def move_table(table: TableRecord, cause: TableCause, wall_us: int) -> TableRecord:
    """Return the table after a cause. Its state must allow the cause."""
    after = TABLE_MOVES[cause][table.state]
    assert after is not None, f"{cause} does nothing to a table that is {table.state}"
    if after is TableState.REMOVED:
        return msgspec.structs.replace(
            table,
            state=after,
            schema=b"",
            partition_schema=b"",
            fully_applied=None,
            purge_us=0,
            changed_us=wall_us,
            first_schemas=(),
        )
    return msgspec.structs.replace(table, state=after, changed_us=wall_us)


def move_tablet(tablet: TabletRecord, cause: TabletCause, wall_us: int) -> TabletRecord:
    """Return the tablet after a cause. Its state must allow the cause."""
    after = TABLET_MOVES[cause][tablet.state]
    assert after is not None, f"{cause} does nothing to a tablet that is {tablet.state}"
    if after is tablet.state:
        return tablet
    if after in (TabletState.REMOVED, TabletState.REPLACED):
        config = None if tablet.config is None else _without_addresses(tablet.config)
        return msgspec.structs.replace(
            tablet, state=after, since_us=wall_us, partition=_FORGOTTEN, config=config, barred=(), begun=()
        )
    return msgspec.structs.replace(tablet, state=after, since_us=wall_us)


def _without_addresses(config: TabletConfig) -> TabletConfig:
    """Return a config without addresses, for a terminal record: it names the nodes that may still hold the tablet.

    So a record never grows when it becomes terminal."""
    members = tuple(msgspec.structs.replace(member, address="") for member in config.members)
    return msgspec.structs.replace(config, members=members)


def new_tablets(
    table_id: TableId, partitions: Iterable[Partition], context: Context, version: int
) -> tuple[TabletRecord, ...]:
    """Return a PREPARING tablet for each partition. Its replicas begin with a version of the schema."""
    return tuple(
        TabletRecord(
            tablet_id=TabletId(draw_id(context.rng)),
            table_id=table_id,
            state=TabletState.PREPARING,
            partition=partition,
            since_us=context.wall_us,
            first_schema=version,
        )
        for partition in partitions
    )


def partitions_of(schema: Schema, partition_schema: PartitionSchema) -> tuple[Partition, ...]:
    """Return the partitions in their order. Raises ``BadPartitioning`` if the two do not fit."""
    return Partitioning(schema, partition_schema).partitions


def table_lock(table_id: TableId) -> str:
    """Return the name of the lock of a table."""
    return f"table/{table_id}"


def tablet_lock(tablet_id: TabletId) -> str:
    """Return the name of the lock of a tablet."""
    return f"tablet/{tablet_id}"


def name_lock(name: str) -> str:
    """Return the name of the lock of a table's name. A change that gives the name to a table takes it."""
    return f"name/{name}"


def table_mutation(
    table: TableRecord, tablets: tuple[TabletRecord, ...] | list[TabletRecord] = (), *, names: tuple[str, ...] = ()
) -> Mutation:
    """Return the record of a table and those of its tablets as one batch, with their locks."""
    puts: tuple[Record, ...] = (*tablets, table)
    locked = (*map(name_lock, names), table_lock(table.table_id), *(tablet_lock(t.tablet_id) for t in tablets))
    version = table.newest.version if table.schema else 0
    answer = ChangeReply(table_id=table.table_id, schema_version=version)
    return Mutation(batch=CatalogBatch(puts=puts), locks=LockRequest(write=locked), answer=answer)


def check_factor(factor: int, context: Context) -> None:
    """Check the number of replicas of a table. Raises ``BadChange``."""
    limit = context.settings.replication_factor_max
    if not 1 <= factor <= limit or factor % 2 == 0:
        raise BadChange(f"replication factor {factor}: it is odd, from 1 to {limit} (replication_factor_max)")
