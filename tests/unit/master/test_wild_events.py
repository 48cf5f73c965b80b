"""Requests whose fields are of the right types and otherwise wild, to the core of a leading master.

No event may raise an exception: it ends the master, and then the next one that gets the same request."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from stelae.partition.schema import Partition, PartitionSchema
from stelae.protocol.actions import encode_action
from stelae.protocol.codec import decode, encode
from stelae.protocol.master_errors import ChangeFailed
from stelae.protocol.master_heartbeats import Heartbeat
from stelae.protocol.master_messages import (
    AddColumn,
    AdoptedTablet,
    AdoptTable,
    AlterTable,
    CatalogReadRequest,
    ChangeReply,
    ChangeRequest,
    CreateTable,
)
from stelae.server.master.core.events import (
    ChangeAsked,
    Confirm,
    Confirmed,
    Effect,
    HeartbeatReceived,
    ReadAsked,
    Refuse,
    Replicate,
    Reply,
    Send,
)
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId
from stelae.wire.refusals import HandlerFailed
from tests.at_length import times
from tests.unit.master.master_with_servers import SCHEMA, SERVERS, MasterWithServers, create, full, only
from tests.wild import Draw, extreme_schemas

EVENTS = 400
SEEDS = times(3)
WORDS = ("readings", "k", "v", "w", "int64", "string", "raft", *SERVERS)


class WildRequests:
    """Draws the requests of clients and servers. ``plausible`` ones have what is checked first."""

    def __init__(self, rng: random.Random, cluster: MasterWithServers) -> None:
        self._rng = rng
        self._cluster = cluster
        self._schemas = (SCHEMA.to_bytes(), *extreme_schemas())
        self._token = 10_000

    def event(self) -> ChangeAsked | HeartbeatReceived | ReadAsked | None:
        """Return the event of a request, or ``None`` if the codec refuses the request."""
        known = [*self._cluster.core.catalog.tablets, *self._cluster.core.catalog.tables]
        draw = Draw(self._rng, (*WORDS, *known[-20:]), self._schemas)
        self._token += 1
        kind: Any = self._pick((ChangeRequest, ChangeRequest, Heartbeat, CatalogReadRequest))
        try:
            body = self._plausible(draw.message(kind), draw)
            request = decode(encode(body), kind)
        except (StelaeError, TypeError, ValueError, RecursionError):
            return None
        events = {ChangeRequest: ChangeAsked, Heartbeat: HeartbeatReceived, CatalogReadRequest: ReadAsked}
        event: ChangeAsked | HeartbeatReceived | ReadAsked = events[kind](self._token, request)
        return event

    def _pick(self, options: Any) -> Any:
        return options[int(self._rng.random() * len(options))]

    def _plausible(self, body: Any, draw: Draw) -> Any:
        if self._rng.random() < 0.2:
            return body
        match body:
            case ChangeRequest():
                change = self._plausible_change(body.change, draw)
                return msgspec.structs.replace(
                    body, client_id="wild", sequence=self._token, first_incomplete=1, change=change
                )
            case Heartbeat():
                return msgspec.structs.replace(body, node_id=self._pick(SERVERS), address="host:1", masters=None)
        return body

    def _plausible_change(self, change: Any, draw: Draw) -> Any:
        layout: Any = {
            "schema": SCHEMA.to_bytes() if self._rng.random() < 0.5 else self._pick(self._schemas),
            "partition_schema": PartitionSchema().to_bytes(),
            "replication_factor": 3,
            "consensus": "raft",
        }
        match change:
            case CreateTable():
                return msgspec.structs.replace(change, name=f"wild {self._token}", **layout)
            case AdoptTable():
                drawn = draw.message(AdoptedTablet)
                members = tuple(
                    msgspec.structs.replace(one, node_id=self._pick(SERVERS)) for one in drawn.config.members
                )
                config = msgspec.structs.replace(drawn.config, members=members)
                tablet = AdoptedTablet(tablet_id=TabletId(f"t{self._token}"), partition=Partition(), config=config)
                name, table_id = f"wild {self._token}", f"{self._token:032x}"
                layout["next_column_id"] = 3 if self._rng.random() < 0.5 else change.next_column_id
                return msgspec.structs.replace(
                    change, name=name, table_id=table_id, tablets=(tablet,), applied=None, **layout
                )
            case AlterTable():
                tables = [table.name for table in self._cluster.core.catalog.tables.values()]
                step = msgspec.structs.replace(
                    draw.message(AddColumn), name=f"c{self._token}", type="int64", nullable=True
                )
                steps = change.steps[:1] if self._rng.random() < 0.5 else (step,)
                return msgspec.structs.replace(change, table=self._pick(tables), steps=steps)
        return change


def check_sendable(effects: list[Effect]) -> None:
    """Check that the effects can be encoded, and that no change met an unexpected error."""
    for effect in effects:
        match effect:
            case Replicate():
                assert effect.batch.encoded or effect.batch.drops
            case Reply():
                encode(effect.body)
            case Send():
                encode_action(effect.action)
            case Refuse():
                assert effect.code not in (ChangeFailed.code, HandlerFailed.code), effect


@pytest.mark.fuzzer
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_wild_request_raises_in_the_core_and_every_effect_can_be_sent(seed: int) -> None:
    cluster = MasterWithServers()
    cluster.lead(1)
    cluster.hear(SERVERS)
    cluster.create_running(create(buckets=1))
    made: set[str] = set()
    wild = WildRequests(random.Random(f"wild events {seed}"), cluster)
    for turn in range(EVENTS):
        if turn % 20 == 0:
            for server in SERVERS:
                cluster.heartbeat(server, full())
        event = wild.event()
        if event is None:
            continue
        effects = cluster.step(event)
        for confirm in only(effects, Confirm):
            effects += cluster.step(Confirmed(confirm.token, True))
        effects += cluster.pass_ms(100)
        check_sendable(effects)
        committed = cluster.commit()
        check_sendable(committed)
        if isinstance(event, ChangeAsked) and any(isinstance(one.body, ChangeReply) for one in only(committed, Reply)):
            made.add(type(event.request.change).__name__)
    assert made >= {"CreateTable", "AlterTable", "AdoptTable"}, "some of each were carried out"
