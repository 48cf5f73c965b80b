"""Serves the requests of an operator who recovers tablets that have lost their majority (``durability.md`` rule 29),
or a catalog whose masters are all lost."""

from __future__ import annotations

from stelae.host.hybrid_clock import physical_us
from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.host.replica_recovery import recover_alone, stand_down
from stelae.protocol.codec import decode, encode
from stelae.protocol.recovery_messages import (
    CATALOG_FACTS,
    RECOVER,
    STAND_DOWN,
    SURVEY,
    CatalogFactsReply,
    CatalogFactsRequest,
    RecoverReply,
    RecoverRequest,
    StandDownRequest,
    SurveyReply,
    SurveyRequest,
    SurvivorView,
    TabletFacts,
)
from stelae.server.frames import only_frame
from stelae.server.tserver.stopped_replicas import has_stopped, leads
from stelae.server.tserver.tablet_service import replica_of
from stelae.spi.consensus import RECOVERS
from stelae.spi.errors import StelaeError, Unsupported
from stelae.spi.ids import TabletId, node_id
from stelae.spi.members import TabletConfig
from stelae.spi.schema import Schema
from stelae.wire.requests import Request

FAILED = "FAILED"

FACTS_MAX = 1_000
"""The most tablets of one answer to a ``CatalogFactsRequest``."""

FACTS_BYTES_MAX = 4 << 20
"""Schemas and other bytes of one answer, after which it takes no more tablets: a schema may have megabytes."""


class RecoveryService:
    """Serves surveys and recoveries of a node's tablets. A ``Service`` (``stelae.spi.hooks``).

    On a master, that is the system tablet: it is recovered like any other."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        """Register the handlers."""
        serve = self._node.messenger.serve
        serve(SURVEY, self._survey)
        serve(STAND_DOWN, self._stand_down)
        serve(RECOVER, self._recover)
        serve(CATALOG_FACTS, self._catalog_facts)

    def stop(self) -> None:
        """Do nothing: the service holds no resources."""

    def _survey(self, request: Request) -> None:
        asked = decode(only_frame(request), SurveyRequest)
        wanted = set(asked.tablet_ids)
        failed = self._node.failed_tablets
        found = [survivor_view(replica) for tablet_id, replica in sorted(self._node.replicas.items())]
        found += [SurvivorView(tablet_id=name, state=FAILED, failure=why) for name, why in sorted(failed.items())]
        views = tuple(view for view in found if not wanted or view.tablet_id in wanted)
        request.reply([encode(SurveyReply(views))])

    def _stand_down(self, request: Request) -> None:
        asked = decode(only_frame(request), StandDownRequest)
        self._check_engine()

        def done(error: StelaeError | None) -> None:
            if error is None:
                request.reply()
            else:
                request.refuse(error)

        stand_down(replica_of(self._node, asked.tablet_id), asked.term, node_id(asked.survivor), done)

    def _recover(self, request: Request) -> None:
        asked = decode(only_frame(request), RecoverRequest)
        self._check_engine()

        def done(result: TabletConfig | StelaeError) -> None:
            if isinstance(result, StelaeError):
                request.refuse(result)
            else:
                request.reply([encode(RecoverReply(result))])

        recover_alone(replica_of(self._node, asked.tablet_id), asked.term, asked.last, asked.config_id, done)

    def _catalog_facts(self, request: Request) -> None:
        after = decode(only_frame(request), CatalogFactsRequest).after or ""
        left = sorted(name for name in {*self._node.replicas, *self._node.failed_tablets} if name > after)
        told: list[TabletFacts] = []
        size_bytes = 0
        for name in left[:FACTS_MAX]:
            told.append(facts := self._facts_of(name))
            size_bytes += len(facts.schema) + len(facts.scheme) + len(facts.failure)
            if size_bytes >= FACTS_BYTES_MAX:
                break
        request.reply([encode(CatalogFactsReply(tuple(told), len(left) > len(told)))])

    def _facts_of(self, name: TabletId) -> TabletFacts:
        if (failure := self._node.failed_tablets.get(name)) is not None:
            return TabletFacts(tablet_id=name, failure=failure)
        return tablet_facts(self._node.replicas[name])

    def _check_engine(self) -> None:
        chosen = self._node.config.consensus
        if RECOVERS not in chosen.engine.capabilities:
            raise Unsupported(f"the consensus engine {chosen.name!r} recovers no tablets; `raft` does")


def survivor_view(replica: Replica) -> SurvivorView:
    """Return what a replica holds."""
    status = replica.core.status()
    return SurvivorView(
        tablet_id=replica.tablet_id,
        state=replica.state.value,
        failure=replica.failure,
        role=status.role.value,
        term=status.term,
        serving=status.serving and not has_stopped(replica),
        last=status.last,
        commit=status.commit,
        config=status.config,
        committed_config=status.committed_config.op_id,
        log_only=replica.log_only,
        applied_us=physical_us(replica.applier.timestamp),
    )


def tablet_facts(replica: Replica) -> TabletFacts:
    """Return what a replica has on record of its table."""
    status, block, applier = replica.status, replica.flusher.superblock, replica.applier
    schemas = [Schema.from_bytes(body) for body in applier.schemas]
    return TabletFacts(
        tablet_id=replica.tablet_id,
        table_id=block.table_name,
        schema=applier.store.schema.to_bytes(),
        next_column_id=max(column.id for schema in schemas for column in schema.columns) + 1,
        scheme=block.partition.scheme,
        hash_buckets=block.partition.hash_buckets,
        consensus=block.consensus_engine,
        config=status.committed_config,
        leads=leads(replica) and applier.applied.index >= status.commit,
        last=status.last,
    )
