"""What a node does with the message by which a leader starts a copy, before the guards look at it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.host.start_copy import CANCEL_COPY, START_COPY, CancelCopy, StartCopy
from stelae.host.superblock import PartitionBounds
from stelae.lifecycle.copy_facts import CopyFacts, RowsForm
from stelae.lifecycle.rows_copy import RowsCopy
from stelae.lifecycle.tablet_copy import TabletCopy
from stelae.partition.schema import HashLevel, PartitionSchema
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.rows.plain_schema import schema_from_plain
from stelae.server.tserver.copy_target import SOURCES_MAX, CopyTargetService, check_facts
from stelae.spi.errors import PeerError, StelaeError
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import Member, MemberType

LEADER, HERE = NodeId("a" * 32), NodeId("b" * 32)
SCHEMA = schema_from_plain({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
SCHEME = PartitionSchema((HashLevel((1,), 2),)).to_bytes()
ASKED = StartCopy(
    to=HERE,
    leader=LEADER,
    term=3,
    tablet_id=TabletId("t"),
    table_name="table",
    consensus="raft",
    config=OpId(2, 7),
    member_type=MemberType.VOTER,
    hosted=True,
    log_base=OpId(2, 9),
    sources=(Member(node_id=LEADER, address="a:1"),),
)


class Server:
    """A node that notes which copies it was asked to begin, and begins none."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, configured: TabletId | None = None) -> None:
        self.started: list[StartCopy] = []
        self.cancelled: list[CancelCopy] = []
        self.handlers: dict[str, Callable[[Any], None]] = {}
        tablet = None if configured is None else SimpleNamespace(id=configured)
        node: Any = SimpleNamespace(
            config=SimpleNamespace(copy=None, tablet=tablet), messenger=SimpleNamespace(on_message=self._handle)
        )
        self.service = CopyTargetService(node, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]
        self.service.start()
        copies: Any = SimpleNamespace(start=self.started.append, cancelled_by_leader=self.cancelled.append, running={})
        self.service._copies = copies

    def _handle(self, kind: str, handler: Callable[[Any], None]) -> None:
        self.handlers[kind] = handler

    def receive(self, kind: str, *frames: bytes, sender: NodeId = LEADER) -> None:
        self.handlers[kind](SimpleNamespace(body=frames, sender=sender))

    def ask(self, sender: NodeId = LEADER, **changed: Any) -> None:
        self.receive(START_COPY, msgspec.msgpack.encode(msgspec.structs.replace(ASKED, **changed)), sender=sender)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def test_the_request_of_a_leader_begins_a_copy(server: Server) -> None:
    server.ask()
    assert server.started == [ASKED]


def test_the_cancellation_of_a_leader_reaches_the_copies(server: Server) -> None:
    cancelled = CancelCopy(tablet_id=TabletId("t"), term=3, why="node c is back")
    server.receive(CANCEL_COPY, msgspec.msgpack.encode(cancelled))
    assert server.cancelled == [cancelled]
    assert server.started == []


WILD: dict[str, dict[str, Any]] = {
    "for another": {"leader": HERE},
    "a path": {"tablet_id": "../t"},
    "no id": {"tablet_id": ""},
    "no source": {"sources": ()},
    "too many sources": {"sources": ASKED.sources * (SOURCES_MAX + 1)},
    "a source without an id": {"sources": (Member(node_id=NodeId("x" * 100_000), address="a:1"),)},
    "a term below 0": {"term": -1},
}


@pytest.mark.parametrize("changed", WILD.values(), ids=WILD)
def test_a_wild_request_is_refused_before_the_guards(server: Server, changed: dict[str, Any]) -> None:
    with pytest.raises(PeerError) as refused:
        server.ask(**changed)
    assert server.started == [] and len(str(refused.value)) < 500


@pytest.mark.parametrize("kind", [START_COPY, CANCEL_COPY])
@pytest.mark.parametrize("frames", [(), (b"",), (b"\xc1",), (b"\x91" * 100_000,), (msgspec.msgpack.encode({}),)])
def test_a_message_that_is_none_is_refused(server: Server, kind: str, frames: tuple[bytes, ...]) -> None:
    with pytest.raises(PeerError, match=f"malformed {kind}"):
        server.receive(kind, *frames)
    assert server.started == [] and server.cancelled == []


def test_a_node_without_a_transport_says_so(server: Server) -> None:
    server.service._copies = None
    with pytest.raises(PeerError, match=r"\[engines\] copy is not set"):
        server.ask()
    server.receive(CANCEL_COPY, msgspec.msgpack.encode(CancelCopy(tablet_id=TabletId("t"), term=1, why="")))
    assert server.service.running == {}
    server.service.stop()


def test_masters_host_the_system_tablet_and_tablet_servers_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was given the address of a master made the master a voter of its tablet."""
    for configured, hosts in ((SYSTEM_TABLET, True), (TabletId("t"), False), (None, False)):
        service = Server(monkeypatch, configured=configured).service
        assert service._hosts(SYSTEM_TABLET) is hosts
        assert service._hosts(TabletId("t")) is not hosts


def facts(bounds: PartitionBounds, schema: bytes) -> CopyFacts:
    return CopyFacts(
        tablet_id=TabletId("t"),
        table_name="table",
        partition=bounds,
        consensus_engine="raft",
        store_engine="memory",
        store_format="1",
        rows_form=RowsForm.FILES,
        schemas=(schema,),
        manifest=b"",
        flushed=ZERO,
        timestamp=0,
        results=b"",
        floor=0,
    )


def test_a_superblock_is_checked_before_anything_of_it_is_used() -> None:
    check_facts(facts(PartitionBounds(), SCHEMA.to_bytes()))
    check_facts(facts(PartitionBounds(hash_buckets=(1,), scheme=SCHEME), SCHEMA.to_bytes()))
    for wrong in (
        facts(PartitionBounds(), b"\xff"),
        facts(PartitionBounds(hash_buckets=(1,), scheme=b"\xff"), SCHEMA.to_bytes()),
        facts(PartitionBounds(hash_buckets=(2,), scheme=SCHEME), SCHEMA.to_bytes()),
    ):
        with pytest.raises(StelaeError):
            check_facts(wrong)


def test_a_copy_whose_request_is_still_being_checked_is_not_reported(server: Server) -> None:
    """A heartbeat at that moment said COPYING of a first member that had not begun. The masters never let it begin."""
    copy = TabletCopy.__new__(TabletCopy)
    copy.admitted = False
    running: Any = server.service._copies
    running.running = {ASKED.tablet_id: copy}
    assert server.service.running == {}
    copy.admitted = True
    assert server.service.running == {ASKED.tablet_id: copy}


def test_a_copy_of_rows_is_reported_for_its_replica_stops_at_the_end(server: Server) -> None:
    """For that moment a witness was reported as deleted, and the masters added another member."""
    copy = RowsCopy.__new__(RowsCopy)
    running: Any = server.service._copies
    running.running = {ASKED.tablet_id: copy}
    assert server.service.running == {ASKED.tablet_id: copy}
