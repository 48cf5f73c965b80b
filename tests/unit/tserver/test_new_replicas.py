"""What a node does with the message by which a leader asks it for an empty replica."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from stelae.host.new_replica import LogStart, NewReplica
from stelae.host.replica_state import ReplicaState
from stelae.host.settings import TabletSettings
from stelae.host.superblock import PartitionBounds
from stelae.lifecycle.tablet_manager import TabletExists
from stelae.partition.schema import HashLevel, PartitionSchema
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import encode
from stelae.protocol.tablet_messages import DESCRIBE, DescribeRequest
from stelae.rows.plain_schema import schema_from_plain
from stelae.server.tserver import new_replicas
from stelae.server.tserver.new_replicas import NewReplicas
from stelae.server.tserver.tablet_service import TabletService
from stelae.spi.errors import PeerError, StelaeError, Unavailable
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig
from stelae.spi.recovery_epoch import EPOCHS_AHEAD_MAX, first_term

SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
SCHEME = PartitionSchema((HashLevel((1,), 2),)).to_bytes()
ASKED = NewReplica(
    tablet_id=TabletId("t"),
    table_name="table",
    schema=SCHEMA.to_bytes(),
    partition=PartitionBounds(hash_buckets=(1,), scheme=SCHEME),
    consensus="raft",
    config=OpId(1, 2),
)


class Server:
    """A node that notes which tablets it was asked to create, and creates none."""

    def __init__(self, *, hosts: TabletId | None = None) -> None:
        self.created: list[TabletSettings] = []
        self.fails: StelaeError | None = None
        self.node: Any = SimpleNamespace(
            config=SimpleNamespace(consensus=SimpleNamespace(name="raft"), tablet=None),
            messenger=SimpleNamespace(on_message=self._on_message),
            node_id=NodeId("b" * 32),
            replicas={} if hosts is None else {hosts: object()},
        )
        manager: Any = SimpleNamespace(create=self._create)
        NewReplicas(self.node, manager, MagicMock()).start()

    def _on_message(self, _kind: str, handler: Callable[[Any], None]) -> None:
        self._handler = handler

    def _create(self, settings: TabletSettings, done: Callable[[StelaeError | None], None]) -> None:
        self.created.append(settings)
        done(self.fails)

    def receive(self, *frames: bytes) -> None:
        self._handler(SimpleNamespace(body=frames))

    def ask(self, **changed: Any) -> None:
        self.receive(msgspec.msgpack.encode(msgspec.structs.replace(ASKED, **changed)))


def test_the_replica_is_made_without_members_and_with_the_partition_of_the_tablet() -> None:
    server = Server()
    server.ask()
    (made,) = server.created
    assert (made.id, made.members, made.schema, made.partition) == (ASKED.tablet_id, (), SCHEMA, ASKED.partition)


def test_a_node_that_has_the_tablet_creates_nothing() -> None:
    server = Server(hosts=ASKED.tablet_id)
    server.ask()
    assert server.created == []


WILD = {
    "another engine": {"consensus": "local"},
    "a name without end": {"consensus": "x" * 100_000},
    "the system tablet": {"tablet_id": SYSTEM_TABLET},
    "a path": {"tablet_id": "../t"},
    "no id": {"tablet_id": ""},
    "no schema": {"schema": b"\xff"},
    "an empty schema": {"schema": b""},
    "no scheme": {"partition": PartitionBounds(hash_buckets=(1,), scheme=b"\xff")},
    "a bucket too many": {"partition": PartitionBounds(hash_buckets=(1, 0), scheme=SCHEME)},
    "a bucket that is none": {"partition": PartitionBounds(hash_buckets=(2,), scheme=SCHEME)},
    "a bucket below 0": {"partition": PartitionBounds(hash_buckets=(-1,), scheme=SCHEME)},
    "a huge bucket": {"partition": PartitionBounds(hash_buckets=((1 << 64) - 1,), scheme=SCHEME)},
    "a column that is none": {
        "partition": PartitionBounds(hash_buckets=(1,), scheme=PartitionSchema((HashLevel((7,), 2),)).to_bytes())
    },
    "a log that begins after more recoveries than there can have been": {
        "log_only": LogStart(
            base=OpId(1, 5),
            committed=TabletConfig(op_id=OpId(0, 0), members=()),
            leader=NodeId("a" * 32),
            term=first_term(EPOCHS_AHEAD_MAX + 1, 0),
            had_vote=False,
        )
    },
    "a scheme that is cut short": {"partition": PartitionBounds(hash_buckets=(1,), scheme=SCHEME[:-1])},
}


@pytest.mark.parametrize("changed", WILD.values(), ids=WILD)
def test_a_wild_message_is_refused_and_creates_nothing(changed: dict[str, Any]) -> None:
    server = Server()
    with pytest.raises(PeerError) as refused:
        server.ask(**changed)
    assert server.created == [] and len(str(refused.value)) < 500


@pytest.mark.parametrize("frames", [(), (b"",), (b"\xc1",), (b"\x91" * 100_000,), (msgspec.msgpack.encode({}),)])
def test_a_message_that_is_none_is_refused(frames: tuple[bytes, ...]) -> None:
    server = Server()
    with pytest.raises(PeerError, match="malformed new_replica"):
        server.receive(*frames)
    assert server.created == []


def test_a_master_creates_no_replica_of_a_table() -> None:
    """A leader that was given the address of a master made the master a voter of its tablet."""
    server = Server()
    server.node.config.tablet = SimpleNamespace(id=SYSTEM_TABLET)
    with pytest.raises(PeerError, match="a master, and masters host no replicas of tables"):
        server.ask()
    assert server.created == []


def test_a_tombstone_refuses_and_says_so_once_although_the_leader_asks_again(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.fails = TabletExists("tablet t was on this node and was deleted")
    with caplog.at_level(logging.INFO, logger=new_replicas.__name__):
        for _ in range(3):
            server.ask()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        server.fails = None
        server.ask()
        server.fails = TabletExists("tablet t was on this node and was deleted")
        server.ask()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]


def test_an_empty_replica_does_not_describe_its_tablet() -> None:
    """A client that asked it first was given no members, and failed with an IndexError."""
    empty: Any = SimpleNamespace(
        log_only=False,
        state=ReplicaState.CONFIGURING,
        status=SimpleNamespace(config=TabletConfig(op_id=OpId(0, 0), members=()), leader=None),
        applier=SimpleNamespace(store=SimpleNamespace(schema=SCHEMA)),
    )
    handlers: dict[str, Callable[[Any], None]] = {}
    node: Any = SimpleNamespace(
        replicas={TabletId("t"): empty},
        messenger=SimpleNamespace(serve=lambda kind, handler, **_: handlers.update({kind: handler})),
        metrics=SimpleNamespace(histogram=lambda _: None),
    )
    load: Any = None
    service = TabletService(node, load)
    service.start()
    request: Any = SimpleNamespace(body=[encode(DescribeRequest(TabletId("t")))], sender=NodeId("c" * 32), reply=list)
    with pytest.raises(Unavailable, match="is empty: it waits for its leader"):
        handlers[DESCRIBE](request)
