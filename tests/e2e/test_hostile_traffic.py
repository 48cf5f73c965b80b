"""Malformed traffic to every service of running nodes: refused; nothing lost, nobody dead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stelae.client.messenger_ports import NoTime, QuietMetrics, WallClock
from stelae.host.heartbeats import Beat, BeatAck, BeatRefusal
from stelae.host.new_replica import NEW_REPLICA, NewReplica
from stelae.host.peer_codec import PeerCodec, PeerMessageHeader
from stelae.host.peer_traffic import BEAT, BEAT_ACK, CONSENSUS, REMOVED, RemovalNotice
from stelae.host.start_copy import CANCEL_COPY, START_COPY, CancelCopy, StartCopy
from stelae.host.superblock import PartitionBounds
from stelae.protocol.codec import encode
from stelae.protocol.copy_messages import ASK_COPY, BEGIN_COPY, END_COPY, AskSource, BeginCopy, EndCopy
from stelae.protocol.member_messages import (
    ABORT_CHANGE,
    CHANGE_MEMBERS,
    CONFIG,
    AbortChangeRequest,
    ChangeMembersRequest,
    ConfigRequest,
)
from stelae.protocol.recovery_messages import (
    RECOVER,
    STAND_DOWN,
    SURVEY,
    RecoverRequest,
    StandDownRequest,
    SurveyRequest,
)
from stelae.protocol.tablet_messages import (
    CHECKSUM,
    DESCRIBE,
    DIFF,
    SCAN,
    SPLIT_KEYS,
    STATUS,
    WRITE,
    ChecksumRequest,
    DescribeRequest,
    ScanRequest,
    SplitKeysRequest,
    StatusRequest,
)
from stelae.rows.operation_encoding import operation, sequence_ranges_of
from stelae.spi.consensus import ConsensusEngine
from stelae.spi.copy import FetchChunk
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ClientId, ClusterId, IncarnationId, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, MemberType, RemoveServer
from stelae.spi.recovery_epoch import first_term
from stelae.spi.scan import Compare, Order, ScanSpec
from stelae.spi.schema import Column, Schema
from stelae.spi.write import OpKind, SequenceRange, WriteRequest, encode_request
from stelae.testing.wire_fuzz import load_corpus, meet, storm
from stelae.wire.messenger import Identity, Lane, Messenger
from stelae.wire.settings import WireSettings
from tests.at_length import times
from tests.e2e.nodes import CLUSTER, PATIENT_MS, TABLET, Cluster, agree, connected, insert, read_ids, running, until

CORPUS = Path(__file__).parents[1] / "unit/wire/corpus"
BULK = (SCAN, DIFF, BEGIN_COPY, ASK_COPY, END_COPY)
RECOVERY = (SURVEY, STAND_DOWN, RECOVER)
REQUESTS = (WRITE, *BULK, DESCRIBE, STATUS, CHECKSUM, SPLIT_KEYS, CONFIG, CHANGE_MEMBERS, ABORT_CHANGE, *RECOVERY)
MESSAGES = (CONSENSUS, BEAT, BEAT_ACK, REMOVED, NEW_REPLICA, START_COPY, CANCEL_COPY)
ATTEMPTS = times(400)

SCHEMA = Schema(1, (Column(id=1, name="id", type="int64"),), (1,))
NEW = NewReplica(
    tablet_id=TABLET,
    table_name="t",
    schema=SCHEMA.to_bytes(),
    partition=PartitionBounds(),
    consensus="raft",
    config=OpId(1, 1),
)


def valid_bodies(engine: type[ConsensusEngine]) -> dict[str, list[list[bytes]]]:
    """For each kind of message, bodies that would be taken as they are; the attack spoils them."""
    rows = operation(OpKind.UPSERT, [(10**6, "row 1000000")])
    write = WriteRequest(TABLET, ClientId("attacker"), 1, 1, sequence_ranges_of([(1, rows), (2, rows)]))
    spec = ScanSpec(predicates=(Compare(1, ">=", 0),), limit=5, order=Order.KEY)
    codec = PeerCodec(engine.message_types)
    guard = PeerMessageHeader(TABLET, 1, OpId(1, 1), OpId(1, 1))
    entries = (Entry(OpId(1, 2), EntryKind.WRITE, 5, b"body"),)
    consensus = [
        [bytes(frame) for frame in codec.encode(guard, made, entries)]
        for kind in engine.message_types.values()
        if (made := example(kind)) is not None
    ]
    mixed = [operation(OpKind.INSERT, [(n, "x")] * n) for n in range(3)]
    mixed += [operation(OpKind.INSERT, b"arrow"), operation(OpKind.UPDATE, [(1, "x")], (1, 2))]
    torn = SequenceRange(5, OpKind.INSERT, None, [op.rows for op in mixed])
    wide = SequenceRange(9, OpKind.INSERT, tuple(range(400)), [rows.rows] * 3)
    odd = WriteRequest(TABLET, ClientId("attacker"), 1, 1, [torn, wide, *sequence_ranges_of(enumerate(mixed, start=1))])
    return {
        WRITE: [[encode_request(write)], [encode_request(odd)]],
        SCAN: [[encode(ScanRequest(TABLET, spec))]],
        DIFF: [[encode(ScanRequest(TABLET, ScanSpec(columns=(1, 2), limit=5, after=b"\0" * 8), since=1))]],
        BEGIN_COPY: [
            [encode(BeginCopy(tablet_id=TABLET, store_engine="columnar", store_format="1", durable_store=True))]
        ],
        ASK_COPY: [[encode(AskSource(request=FetchChunk("run-1", "log/1-9", 0, 1 << 20)))]],
        END_COPY: [[encode(EndCopy(session="run-1"))]],
        DESCRIBE: [[encode(DescribeRequest(TABLET))]],
        STATUS: [[encode(StatusRequest())]],
        CHECKSUM: [[encode(ChecksumRequest(TABLET))]],
        SPLIT_KEYS: [[encode(SplitKeysRequest(TABLET, 1 << 20, b"\0" * 8, b"\xff" * 8))]],
        CONSENSUS: consensus,
        BEAT: [[encode(Beat(1, ((TABLET, 1),)))]],
        BEAT_ACK: [[encode(BeatAck(1, (BeatRefusal(TABLET, 1, "term"),)))]],
        REMOVED: [[encode(RemovalNotice(TABLET, OpId(9, 9)))]],
        NEW_REPLICA: [[encode(NEW)]],
        START_COPY: [[encode(copy_to(hosted))] for hosted in (True, False)],
        CANCEL_COPY: [[encode(CancelCopy(tablet_id=TABLET, term=9, why="not needed"))]],
        CONFIG: [[encode(ConfigRequest(TABLET))]],
        CHANGE_MEMBERS: [[encode(ChangeMembersRequest(TABLET, RemoveServer(node_id=NodeId("e" * 32)), OpId(0, 1)))]],
        ABORT_CHANGE: [[encode(AbortChangeRequest(TABLET, OpId(0, 1)))]],
        SURVEY: [[encode(SurveyRequest((TABLET,)))]],
        STAND_DOWN: [[encode(StandDownRequest(TABLET, first_term(1, 0), NodeId("e" * 32)))]],
        RECOVER: [[encode(RecoverRequest(TABLET, first_term(1, 0), OpId(1, 1), OpId(1, 1)))]],
    }


def copy_to(hosted: bool) -> StartCopy:
    """The request of a node that claims to lead with the newest config, and to have what the others lack."""
    attacker = NodeId("e" * 32)
    return StartCopy(
        to=attacker,
        leader=attacker,
        term=1 << 40,
        tablet_id=TABLET,
        table_name="t",
        consensus="raft",
        config=OpId(9, 9),
        member_type=MemberType.VOTER,
        hosted=hosted,
        log_base=OpId(9, 9),
        sources=(Member(node_id=attacker, address="127.0.0.1:9"),),
    )


def example(kind: type[msgspec.Struct]) -> msgspec.Struct | None:
    """A message of a type, every required field a small number or whatever else it takes."""
    for value in (1, "x", (1, 1), None, False):
        filled = {f.name: value for f in msgspec.structs.fields(kind) if f.required}
        try:
            return msgspec.convert(filled, kind)
        except msgspec.ValidationError:
            continue
    blank = {f.name: _of(f.type) for f in msgspec.structs.fields(kind) if f.required}
    return kind(**blank)


def _of(wanted: object) -> object:
    return OpId(1, 1) if wanted is OpId else False if wanted is bool else 1


def spoil(rng: random.Random, frames: list[bytes]) -> list[bytes]:
    """Frames with some bytes changed, cut, doubled or dropped."""
    spoiled = [bytearray(frame) for frame in frames]
    for _ in range(1 + int(rng.random() * 3)):
        frame = spoiled[int(rng.random() * len(spoiled))]
        place = int(rng.random() * (len(frame) + 1))
        match int(rng.random() * 4):
            case 0 if frame:
                frame[min(place, len(frame) - 1)] ^= 1 << int(rng.random() * 8)
            case 1:
                del frame[place:]
            case 2:
                frame[place:place] = bytes([rng.getrandbits(8)])
            case _:
                frame.extend(frame)
    if rng.random() < 0.1:
        spoiled.append(bytearray(b"more"))
    return [bytes(frame) for frame in spoiled]


def attacker(cluster: Cluster) -> Messenger:
    """A client of the right cluster, which is allowed to speak and says nonsense."""
    loop = asyncio.get_running_loop()

    def defer(call: Callable[[], None]) -> None:
        loop.call_soon(call)

    return Messenger(
        Identity(cluster_id=ClusterId(CLUSTER), node_id=NodeId("f" * 32), incarnation_id=IncarnationId("f" * 16)),
        clock=WallClock(),
        time=NoTime(),
        defer=defer,
        settings=WireSettings(),
        metrics=QuietMetrics(),
        rng=random.Random(7),
    )


@pytest.mark.fuzzer
@pytest.mark.parametrize("kind", [*REQUESTS, *MESSAGES])
def test_spoiled_bodies_of_every_kind_are_refused_and_the_tablet_serves_on(tmp_path: Path, kind: str) -> None:
    async def scenario() -> None:
        async with running(tmp_path, election_timeout_ms=PATIENT_MS) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(50))
            leader = await cluster.leading()
            term = cluster.nodes[leader].replicas[TABLET].status.term
            loud: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, told: loud.append(told))
            bodies = valid_bodies(cluster.nodes[leader].config.consensus.engine)[kind]
            messenger, rng = attacker(cluster), random.Random(kind)
            try:
                await messenger.connect(cluster.addresses[cluster.ids.index(leader)])
                lane = Lane.BULK if kind in BULK else Lane.CONTROL
                await until(lambda: messenger.connected(leader, lane) is not None)
                refused = 0
                for _ in range(ATTEMPTS):
                    frames = spoil(rng, bodies[int(rng.random() * len(bodies))])
                    if kind in MESSAGES:
                        messenger.send(leader, kind, frames, lane=lane)
                        continue
                    try:
                        await messenger.call(leader, kind, frames, deadline_ms=5000, lane=lane)
                    except StelaeError:
                        refused += 1
                assert kind in MESSAGES or refused > ATTEMPTS // 10
            finally:
                messenger.close()
            node = cluster.nodes[leader]
            assert node.crashed is None and not loud
            assert node.replicas[TABLET].status.term == term
            assert not any(n.replicas[TABLET].failure for n in cluster.nodes.values())
            await insert(tablet, range(50, 100))
            # A spoiled write may still be a valid one, of another row or text far above these rows.
            rows = [tuple(row) async for batch in tablet.scan() for row in batch.to_rows()]
            assert [row for row in rows if row[0] < 100] == [(n, f"row {n}") for n in range(100)]
            await until(lambda: agree(cluster))

    asyncio.run(scenario())


@pytest.mark.fuzzer
def test_a_storm_against_every_service_of_a_node_leaves_its_rows_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as cluster, connected(cluster) as tablet:
            await insert(tablet, range(100))
            leader = await cluster.leading()
            address = cluster.addresses[cluster.ids.index(leader)]
            rng = random.Random(11)
            who = await asyncio.to_thread(meet, address, rng, CLUSTER)
            cases = [c for c in load_corpus(CORPUS) if not c.name.startswith(("flood", "frame"))]
            await asyncio.to_thread(
                lambda: storm(cases, address, rng=rng, node=who, kinds=(*REQUESTS, *MESSAGES), messages=times(1500))
            )
            figures = cluster.nodes[leader].metrics.snapshot()
            assert figures["wire_refused_total"] > 100
            assert cluster.nodes[leader].crashed is None
            await insert(tablet, range(100, 200))
            assert await read_ids(tablet) == list(range(200))
            await until(lambda: agree(cluster))

    asyncio.run(scenario())
