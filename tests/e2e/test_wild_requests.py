"""Requests whose fields are of the right types and otherwise wild, to every service of masters and tablet servers.

Spoiled bytes (``test_hostile_traffic``) end at the codec. These pass it, and reach what lies behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stelae.client.async_client import connect_async
from stelae.host.heartbeats import Beat, BeatAck
from stelae.host.new_replica import NEW_REPLICA, NewReplica
from stelae.host.node import Node
from stelae.host.peer_traffic import BEAT, BEAT_ACK, CONSENSUS, REMOVED, RemovalNotice
from stelae.host.start_copy import CANCEL_COPY, START_COPY, CancelCopy, StartCopy
from stelae.lifecycle.first_schema import FIRST_SCHEMA, FirstSchema
from stelae.partition.schema import PartitionSchema
from stelae.protocol.actions import ACTION, AlterSchema, ChangeConfig, ConfigChange, CreateReplica, ServerAction
from stelae.protocol.cluster_bootstrap_messages import BOOTSTRAP, BootstrapRequest
from stelae.protocol.codec import encode
from stelae.protocol.copy_list_messages import (
    COPIES,
    LIMIT_COPIES,
    ORDER_COPIES,
    CopiesRequest,
    LimitCopies,
    OrderCopies,
)
from stelae.protocol.copy_messages import ASK_COPY, BEGIN_COPY, END_COPY, AskSource, BeginCopy, EndCopy
from stelae.protocol.lookup_messages import LOOKUP, LookupRequest
from stelae.protocol.master_errors import BadChange, ChangeFailed
from stelae.protocol.master_heartbeats import HEARTBEAT, Heartbeat
from stelae.protocol.master_messages import (
    CHANGE,
    READ,
    AddColumn,
    AlterTable,
    CatalogReadRequest,
    ChangeRequest,
    CreateTable,
)
from stelae.protocol.masters_messages import CHANGE_MASTERS, MASTERS, ChangeMastersRequest, MastersRequest
from stelae.protocol.member_messages import (
    ABORT_CHANGE,
    CHANGE_MEMBERS,
    CONFIG,
    AbortChangeRequest,
    ChangeMembersRequest,
    ConfigRequest,
)
from stelae.protocol.node_messages import NODE, QUARANTINE, NodeRequest, QuarantineRequest
from stelae.protocol.read_index_messages import READ_INDEX, ReadIndexRequest
from stelae.protocol.recovery_messages import (
    CATALOG_FACTS,
    FOLLOW_MASTERS,
    RECOVER,
    STAND_DOWN,
    SURVEY,
    CatalogFactsRequest,
    FollowMastersRequest,
    RecoverRequest,
    StandDownRequest,
    SurveyRequest,
)
from stelae.protocol.tablet_messages import (
    ALTER,
    CHECKSUM,
    DESCRIBE,
    DIFF,
    SCAN,
    SPLIT_KEYS,
    STATUS,
    TRANSFER_LEADERSHIP,
    WRITE,
    AlterRequest,
    ChecksumRequest,
    DescribeRequest,
    ScanRequest,
    SplitKeysRequest,
    StatusRequest,
    TransferRequest,
)
from stelae.rows.operation_encoding import operation
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ClientId, NodeId
from stelae.spi.members import Member
from stelae.spi.write import OpKind, WriteRequest
from stelae.wire.messenger import Lane, Messenger
from stelae.wire.refusals import HandlerFailed
from tests.at_length import times
from tests.e2e.master_nodes import Cluster, running, until
from tests.e2e.test_hostile_traffic import attacker
from tests.wild import Draw, extreme_schemas

Words = dict[bool, dict[str, Any]]

TYPES: dict[str, Any] = {
    WRITE: WriteRequest,
    SCAN: ScanRequest,
    DIFF: ScanRequest,
    LOOKUP: LookupRequest,
    DESCRIBE: DescribeRequest,
    STATUS: StatusRequest,
    CHECKSUM: ChecksumRequest,
    SPLIT_KEYS: SplitKeysRequest,
    ALTER: AlterRequest,
    TRANSFER_LEADERSHIP: TransferRequest,
    CONFIG: ConfigRequest,
    CHANGE_MEMBERS: ChangeMembersRequest,
    ABORT_CHANGE: AbortChangeRequest,
    SURVEY: SurveyRequest,
    STAND_DOWN: StandDownRequest,
    RECOVER: RecoverRequest,
    CATALOG_FACTS: CatalogFactsRequest,
    FOLLOW_MASTERS: FollowMastersRequest,
    ACTION: ServerAction,
    QUARANTINE: QuarantineRequest,
    NODE: NodeRequest,
    CHANGE: ChangeRequest,
    READ: CatalogReadRequest,
    HEARTBEAT: Heartbeat,
    READ_INDEX: ReadIndexRequest,
    BOOTSTRAP: BootstrapRequest,
    MASTERS: MastersRequest,
    CHANGE_MASTERS: ChangeMastersRequest,
    BEGIN_COPY: BeginCopy,
    ASK_COPY: AskSource,
    END_COPY: EndCopy,
    COPIES: CopiesRequest,
    ORDER_COPIES: OrderCopies,
    LIMIT_COPIES: LimitCopies,
}
ONE_WAY: dict[str, Any] = {
    BEAT: Beat,
    BEAT_ACK: BeatAck,
    REMOVED: RemovalNotice,
    NEW_REPLICA: NewReplica,
    START_COPY: StartCopy,
    CANCEL_COPY: CancelCopy,
    FIRST_SCHEMA: FirstSchema,
}
ELSEWHERE = {CONSENSUS}
"""Kinds that other tests attack: consensus messages, per engine."""

ATTEMPTS = times(80)
"""Of each kind, to each node that serves it."""

BULK = (SCAN, DIFF, BEGIN_COPY, ASK_COPY, END_COPY)
DELETING = (ACTION, CHANGE, HEARTBEAT)
"""Requests that may delete what they name. Servers are not authenticated: if one reports that it leads a tablet in a
later term, with a config without the others, then the masters let the others delete their replicas."""


def plausible(kind: str, body: Any, rng: random.Random, me: str, tablet: str, numbers: list[int]) -> Any:
    """Half of what is drawn gets the fields right that are looked at first, so that the others are looked at too."""
    if rng.random() < 0.5:
        return body
    numbers[0] += 1
    match body:
        case Heartbeat():
            return msgspec.structs.replace(body, node_id=me, address="127.0.0.1:9")
        case ChangeRequest():
            change = plausible_change(body.change, numbers[0])
            return msgspec.structs.replace(
                body, client_id="wild", sequence=numbers[0], first_incomplete=1, change=change
            )
        case WriteRequest():
            numbers[0] += 100
            sequences = [
                msgspec.structs.replace(sequence, first_sequence=numbers[0] + place * 10, ops=_rows(rng))
                for place, sequence in enumerate(body.sequences)
            ]
            return msgspec.structs.replace(
                body, tablet_id=tablet, client_id="wild", first_incomplete=1, schema_version=1, sequences=sequences
            )
        case BeginCopy() | LookupRequest():
            return msgspec.structs.replace(body, tablet_id=tablet)
        case ScanRequest():
            return msgspec.structs.replace(
                body, tablet_id=tablet, rows_max=1 + int(rng.random() * 50), since=1 if kind == DIFF else None
            )
    return body


def plausible_action(action: Any, node_id: NodeId, tablet: str, rng: random.Random, number: int) -> Any:
    """Return half of the actions addressed to a node: a new replica of its own, or a change of a replica that it leads.

    A deletion names nothing that the test needs later, and no schema that is drawn is the next one."""
    if rng.random() < 0.5:
        return action
    addressed = msgspec.structs.replace(action, node_id=node_id)
    match addressed:
        case CreateReplica():
            member = Member(node_id=node_id, address="127.0.0.1:9")
            config = msgspec.structs.replace(addressed.config, members=(member,))
            return msgspec.structs.replace(addressed, tablet_id=f"new-{number}", config=config, consensus="raft")
        case AlterSchema():
            return msgspec.structs.replace(addressed, tablet_id=tablet, version=2)
        case ChangeConfig():
            return msgspec.structs.replace(addressed, tablet_id=tablet, change=ConfigChange.CHANGE_ROLE, member=node_id)
    return addressed


def plausible_change(change: Any, number: int) -> Any:
    """Return the change with what a master looks at first as it should be, so that the numbers in it are planned."""
    match change:
        case CreateTable():
            scheme = PartitionSchema().to_bytes()
            return msgspec.structs.replace(
                change, name=f"wild {number}", partition_schema=scheme, replication_factor=1, consensus="raft"
            )
        case AlterTable():
            drawn = next((step for step in change.steps if isinstance(step, AddColumn)), AddColumn("w", "int64"))
            step = msgspec.structs.replace(drawn, name=f"wild {number}", type="int64", nullable=True)
            return msgspec.structs.replace(change, table="spare", steps=(step,))
    return change


def _rows(rng: random.Random) -> list[msgspec.Raw]:
    rows: list[Any] = [
        [(1, "x")],
        [(2**63 - 1, None)],
        [(-1, "")],
        [(1,)],
        [()],
        [(None, 1)],
        [("x", 1)],
        [(1, "x", 3)],
    ]
    rows += [b"arrow", b""]
    return [
        operation(OpKind.UPSERT, rows[int(rng.random() * len(rows))]).rows for _ in range(1 + int(rng.random() * 3))
    ]


async def attack(messenger: Messenger, node: Node, words: Words, seed: str, tablet: str) -> Counter[str]:
    """Send wild messages of every kind that a node serves; return how often each was answered how.

    ``words[True]`` names nothing that the test needs later: it is for requests that may delete what they name. Each
    kind has draws of its own, so a new kind does not change what the others get."""
    seen: Counter[str] = Counter()
    numbers = [0]
    kinds = set(node.messenger._served_kinds._services)
    assert kinds - ELSEWHERE <= TYPES.keys() | ONE_WAY.keys(), "a new kind of request: say here what its body is"
    for kind in sorted(kinds - ELSEWHERE):
        lane = Lane.BULK if kind in BULK else Lane.CONTROL
        rng = random.Random(f"{seed} {kind}")
        draw = Draw(rng, **words[kind in DELETING])
        for _ in range(ATTEMPTS):
            try:
                body = plausible(kind, draw.message({**TYPES, **ONE_WAY}[kind]), rng, "f" * 32, tablet, numbers)
                if kind == ACTION:
                    numbers[0] += 1
                    body = plausible_action(body, node.node_id, tablet, rng, numbers[0])
                frames = [msgspec.msgpack.encode(body)]
            except (StelaeError, UnicodeEncodeError, TypeError, OverflowError):
                continue
            if kind in ONE_WAY:
                messenger.send(node.node_id, kind, frames)
                continue
            try:
                await messenger.call(node.node_id, kind, frames, deadline_ms=2000, lane=lane)
                seen[f"{kind} ok"] += 1
            except StelaeError as error:
                seen[f"{kind} {error.code}"] += 1
                assert error.code not in (HandlerFailed.code, ChangeFailed.code), (
                    f"{kind} met an unexpected error: {body}"
                )
            assert node.crashed is None, f"{kind} ended the node: {body}"
            assert not any(r.failure for r in node.replicas.values()), f"{kind} failed a replica: {body}"
    return seen


@pytest.mark.fuzzer
def test_wild_requests_to_every_service_are_answered_and_masters_and_servers_serve_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, 1, 1) as cluster:
            loud: list[object] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, told: loud.append(told))
            master, server = cluster.masters[0], cluster.servers[0]
            async with await connect_async(cluster.addresses[master]) as client:
                await client.create_table("kept", {"id": "int64", "text": "string"}, ["id"], replicas=1)
                table = await client.table("kept")
                await table.insert([{"id": 1000 + n, "text": "x"} for n in range(100)])
                tablet = next(iter(cluster.nodes[server].replicas))
                await client.create_table("spare", {"id": "int64", "text": "string"}, ["id"], replicas=1)
                await _attack_all(cluster, tablet)
                assert not loud
                await table.upsert([{"id": 1000 + n, "text": "y"} for n in range(100)])
                kept = [row for row in await table.scan().to_pylist() if 1000 <= row["id"] < 1100]
                assert kept == [{"id": 1000 + n, "text": "y"} for n in range(100)]

    asyncio.run(scenario())


@pytest.mark.parametrize("column_id", [2**31, 2**64 - 1])
def test_a_table_whose_column_id_no_record_can_hold_is_refused_and_the_next_table_is_created(
    tmp_path: Path, column_id: int
) -> None:
    """The next column id, 2**64, ended the step of every master that a client asked, one after the other."""

    async def scenario() -> None:
        async with running(tmp_path, 1, 1) as cluster:
            master = cluster.masters[0]
            async with await connect_async(cluster.addresses[master]) as client:
                await client.create_table("before", {"id": "int64"}, ["id"], replicas=1)
                schema = msgspec.msgpack.encode([1, [[column_id, "id", "int64"]], [column_id]])
                huge = CreateTable(
                    name="huge", schema=schema, partition_schema=PartitionSchema().to_bytes(), replication_factor=1
                )
                request = ChangeRequest(client_id=ClientId("wild"), sequence=1, first_incomplete=1, change=huge)
                messenger = attacker(cluster)  # type: ignore[arg-type]
                try:
                    await messenger.connect(cluster.addresses[master])
                    with pytest.raises(BadChange, match=f"id {column_id}: expected an id of 1 to 2147483647"):
                        await messenger.call(master, CHANGE, [encode(request)], deadline_ms=5000)
                finally:
                    messenger.close()
                assert not any(replica.failure for replica in cluster.nodes[master].replicas.values())
                await client.create_table("after", {"id": "int64"}, ["id"], replicas=1)
                assert set(await client.tables()) == {"before", "after"}

    asyncio.run(scenario())


async def _attack_all(cluster: Cluster, tablet: str) -> None:
    messenger = attacker(cluster)  # type: ignore[arg-type]
    try:
        for node_id, node in cluster.nodes.items():
            await messenger.connect(cluster.addresses[node_id])
            await until(lambda node_id=node_id: messenger.connected(node_id, Lane.BULK) is not None)  # type: ignore[misc]
            schema = cluster.nodes[cluster.servers[0]].replicas[tablet].applier.store.schema.to_bytes()  # type: ignore[index]
            texts = [node_id, "text", "id", "int64"]
            blobs = [schema, schema, *extreme_schemas()]
            kept = {"texts": [tablet, tablet, *texts], "blobs": blobs}
            spare = {"texts": ["spare", *texts], "blobs": blobs}
            seed = "master 7" if node_id in cluster.masters else "server 7"
            seen = await attack(messenger, node, {False: kept, True: spare}, seed, tablet)
            answered = {name.split()[0] for name in seen}
            assert answered == set(node.messenger._served_kinds._services) - ELSEWHERE - ONE_WAY.keys()
    finally:
        messenger.close()
