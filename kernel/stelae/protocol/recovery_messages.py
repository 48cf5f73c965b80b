"""The requests by which an operator recovers tablets that have lost their majority, and a lost catalog. They work
without masters.

The constants are message kinds. Bodies are these types in MessagePack.

Source: "Raft config change", *Restoring availability after catastrophic data loss*; ``durability.md`` rule 29."""

from __future__ import annotations

import msgspec

from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig

SURVEY = "recovery.survey"
STAND_DOWN = "recovery.stand_down"
RECOVER = "recovery.recover"
CATALOG_FACTS = "recovery.catalog_facts"
FOLLOW_MASTERS = "recovery.follow_masters"


class SurveyRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node what its replicas hold."""

    tablet_ids: tuple[TabletId, ...] = ()  #: Without ids: all replicas.


class SurvivorView(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica holds. A replica that could not be recovered has ``tablet_id``, ``state`` and ``failure``."""

    tablet_id: TabletId
    state: str  #: As ``ReplicaReport.state``.
    failure: str = ""
    role: str = ""
    term: int = 0
    serving: bool = False  #: An entry of its term is known to be committed.
    last: OpId = OpId(0, 0)  #: The last entry of its log.
    commit: int = 0  #: Up to this index it knows the log to be committed.
    config: TabletConfig | None = None  #: The config in force: the newest one in its log.
    committed_config: OpId = OpId(0, 0)
    log_only: bool = False  #: It has no rows (a witness).
    applied_us: int = 0  #: When the newest entry that it has applied was written: microseconds since 1970; 0: never.


class SurveyReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``SurveyRequest``. Tombstones, and copies that are in progress, are not in it."""

    replicas: tuple[SurvivorView, ...]


class StandDownRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a replica to leave the tablet to a survivor that is about to be recovered. The answer is empty. Repeatable.

    The replica campaigns no more, and cannot be recovered itself in this recovery epoch."""

    tablet_id: TabletId
    term: int  #: The first term of the recovery (``stelae.spi.recovery_epoch``).
    survivor: NodeId


class RecoverRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a replica to become the only voter of its tablet. Repeatable.

    The request is refused if the replica's log or config is another one by now."""

    tablet_id: TabletId
    term: int  #: The first term of the recovery.
    last: OpId  #: The last entry of the replica's log.
    config_id: OpId  #: The op id of the config in force.


class RecoverReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``RecoverRequest``: the config, which is committed."""

    config: TabletConfig


class CatalogFactsRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a tablet server what its replicas have on record of their tables.

    The answer has the tablets after ``after``, in order."""

    after: TabletId | None = None


class TabletFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica has on record of its tablet. A replica that has failed has only its id, and why."""

    tablet_id: TabletId
    failure: str = ""
    table_id: str = ""
    schema: bytes = b""  #: The newest version that it has applied, as of ``Schema.to_bytes``.
    next_column_id: int = 0  #: Greater than every column id in any version that it knows.
    scheme: bytes = b""  #: Its part of the partition schema (``tablet_partition.tablet_scheme``).
    hash_buckets: tuple[int, ...] = ()
    consensus: str = ""
    config: TabletConfig | None = None  #: The committed one.
    leads: bool = False  #: It leads the tablet, and has applied all that is committed: its schema is the newest.
    last: OpId = OpId(0, 0)  #: The last entry of its log.


class CatalogFactsReply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to a ``CatalogFactsRequest``."""

    tablets: tuple[TabletFacts, ...]
    more: bool  #: There are tablets after the last one.


class FollowMastersRequest(msgspec.Struct, frozen=True, array_like=True):
    """Hand a tablet server, whose masters are all lost, to those of a new catalog. Repeatable.

    The answer is empty, and comes once the server follows them also after a restart. The request is refused while its
    masters lead, or if it belongs to another cluster than ``instead_of_us``."""

    cluster_created_us: int  #: When the new catalog was put on record.
    config: TabletConfig  #: The masters of the new catalog.
    instead_of_us: int  #: When the lost one was put on record.
