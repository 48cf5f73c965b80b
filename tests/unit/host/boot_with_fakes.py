"""A program: boots a node on fakes, writes a row through it, and prints the outcome as JSON.

Run by ``test_boot_with_fakes`` in a process of its own, whose imports are nobody else's."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from typing import Any

import msgspec
from fake_engines import FakeBatcher, FakeStore, FakeWal, SoloConsensus
from fake_machine import FakeClock, FakeMachine, FakeMetrics

from stelae.host.assembly import Engines, RecoveredTablet
from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.exactly_once_results import ResultsTable
from stelae.host.instance import Instance, format_directory
from stelae.host.log_sizes import LogSizes
from stelae.host.node import Node
from stelae.host.settings import ChosenEngine, NodeConfig, NodeSettings, TabletSettings
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.spi.consensus import HardState, LogView, Status
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, ClientId, ClusterId, IncarnationId, NodeId, TabletId
from stelae.spi.members import Member
from stelae.spi.schema import Column, Schema
from stelae.spi.services import Files
from stelae.spi.write import (
    OpKind,
    SequenceRange,
    WriteReply,
    WriteRequest,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from stelae.wire.messenger import Identity, Messenger
from stelae.wire.requests import Request
from stelae.wire.settings import WireSettings

CLUSTER = ClusterId("fakes")
TABLET = TabletId("t")
NODE = NodeId("a" * 32)
SCHEMA = Schema(1, (Column(id=1, name="key", type="int64", nullable=False),), (1,))
WAIT_S = 30.0
"""Reached only by a defect."""


class FakeService:
    """Passes writes on to the node's replica."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        self._node.messenger.serve("fake.write", self._write)

    def stop(self) -> None:
        pass

    def _write(self, request: Request) -> None:
        def done(result: WriteReply | StelaeError) -> None:
            if isinstance(result, StelaeError):
                request.refuse(result)
            else:
                request.reply([encode_reply(result)])

        self._node.replicas[TABLET].write(decode_request(request.body[0]), done)


class FakeTablets:
    """Creates the configured tablet, which is empty; nothing else was ever here."""

    def __init__(self, files: Files, layout: DirectoryLayout, engines: Engines, names: tuple[str, str]) -> None:
        self.failed: dict[TabletId, str] = {}
        self._files, self._layout, self._engines = files, layout, engines

    def create(self, tablet: TabletSettings) -> bool:
        self._consensus = ConsensusMetadata(self._files, self._layout, tablet.id)
        self._consensus.save(HardState(), tablet.initial_config())
        self._block = Superblock(tablet_id=tablet.id, schemas=(tablet.schema.to_bytes(),))
        self._engines.wal.create(self._block.log_id, ZERO)
        self.superblock_file(tablet.id).save(self._block)
        return True

    def recover_all(self) -> list[RecoveredTablet]:
        engines, block = self._engines, self._block
        directory, schemas = self._layout.data_of(block.tablet_id), [Schema.from_bytes(body) for body in block.schemas]
        known = {schema.version: schema for schema in schemas}
        return [
            RecoveredTablet(
                superblock=block,
                consensus=self._consensus.load(),
                log=LogView(base=ZERO, last=ZERO),
                store=engines.store.open(directory, b"", ZERO, known, engines.store_config, engines.services),
                results=ResultsTable(),
                applied=ZERO,
                schemas=block.schemas,
                timestamp=0,
                log_sizes=LogSizes(0),
            )
        ]

    def superblock_file(self, tablet_id: TabletId) -> SuperblockFile:
        return SuperblockFile(self._files, self._layout, tablet_id)

    def fail(self, tablet_id: TabletId, reason: str) -> None:
        raise AssertionError(reason)


class Witness:
    """An observer that waits until the replica serves."""

    def __init__(self) -> None:
        self.serving = asyncio.Event()

    def status_changed(self, tablet_id: TabletId, before: Status, after: Status) -> None:
        if after.serving:
            self.serving.set()

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        raise AssertionError(reason)


class NoTime:
    """The hybrid time of a process that is no node."""

    def now(self) -> int:
        return 0

    def observe(self, timestamp: int) -> None:
        pass


class FakeCopies:
    """The class of a copy transport with seven slots."""

    @classmethod
    def target_slots(cls, config: object) -> int:
        return 7


def node_config(directory: str) -> NodeConfig:
    engines = (FakeWal, SoloConsensus, FakeStore)
    wal, consensus, store = (ChosenEngine(name="fake", engine=e, config=None) for e in engines)
    member = Member(node_id=NODE, address="127.0.0.1:1")
    return NodeConfig(
        node=NodeSettings(directory=directory, listen="127.0.0.1:0"),
        cluster_id=CLUSTER,
        tablet=TabletSettings(id=TABLET, schema=SCHEMA, members=(member,)),
        wal=wal,
        consensus=consensus,
        store=store,
        copy=ChosenEngine(name="fake", engine=FakeCopies, config=None),
    )


async def write(address: str, key: int) -> WriteReply:
    """Connect as a client does and insert one row."""
    messenger = Messenger(
        Identity(cluster_id=CLUSTER, node_id=NodeId("c" * 32), incarnation_id=IncarnationId("c" * 16)),
        clock=FakeClock(),
        time=NoTime(),
        defer=asyncio.get_running_loop().call_soon,
        settings=WireSettings(),
        metrics=FakeMetrics(),
        rng=random.Random(1),
    )
    request = WriteRequest(
        tablet_id=TABLET,
        client_id=ClientId("c"),
        first_incomplete=1,
        schema_version=SCHEMA.version,
        sequences=[SequenceRange(1, OpKind.INSERT, None, [msgspec.Raw(msgspec.msgpack.encode([(key,)]))])],
    )
    try:
        node = await messenger.connect(address)
        frames = [encode_request(request)]
        answer = await messenger.call(node, "fake.write", frames, deadline_ms=10_000)
        return decode_reply(answer.body[0])
    finally:
        messenger.close()


async def run() -> dict[str, Any]:
    machine = FakeMachine()
    format_directory(
        machine.files, DirectoryLayout("/node"), Instance(node_id=NODE, cluster_id=CLUSTER, wal_engine="fake")
    )
    witness = Witness()
    node = Node(
        node_config("/node"),
        services=[FakeService],
        machine=machine,
        batcher=FakeBatcher,
        tablets=FakeTablets,
        observer=witness,
    )
    async with asyncio.timeout(WAIT_S):
        await node.start()
        await witness.serving.wait()
        reply = await write(node.address, key=7)
        rows = list(node.replicas[TABLET].applier.store.rows)
        await node.stop()
    ours = [name for name in sys.modules if name.partition(".")[0].startswith("stelae")]
    return {
        "errors": [answer.result.refusal or len(answer.result.errors) for answer in reply.answers],
        "rows": rows,
        "copy_threads": machine.threads["copy"],
        "crashed": repr(node.crashed),
        "packages": sorted({".".join(name.split(".")[:2]) for name in ours}),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run())))
