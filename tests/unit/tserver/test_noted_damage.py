"""Damage that a request finds in the rows of a replica fails that replica, whichever request finds it.

Without this, a replica whose damage only one kind of request meets would answer ``CORRUPT`` to that kind for ever."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import msgspec
import pytest

from stelae.host.read_faults import READ_ERRORS_MAX, ReadFaults
from stelae.host.replica_state import ReplicaState
from stelae.protocol.codec import encode
from stelae.protocol.lookup_messages import LookupRequest
from stelae.protocol.tablet_messages import DIFF, SCAN, SPLIT_BYTES_MIN, ChecksumRequest, ScanRequest, SplitKeysRequest
from stelae.server.tserver.tablet_service import TabletService
from stelae.spi.errors import Corrupt, StelaeError, StorageError
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.scan import ScanSpec
from stelae.spi.store import FoundRows

T = TabletId("t")
AT = 5
DAMAGE = Corrupt("the checksum is wrong", path="data/t/a", offset=8)
DISK = StorageError("input/output error", path="data/t/a")

REQUESTS: dict[str, tuple[Any, str, msgspec.Struct]] = {
    "scan": (TabletService._scan, SCAN, ScanRequest(T, ScanSpec(), AT)),
    "diff": (TabletService._scan, DIFF, ScanRequest(T, ScanSpec(), AT, since=AT - 1)),
    "lookup": (TabletService._look_up, "", LookupRequest(T, (b"k",), 1, AT)),
    "lookup in memory": (TabletService._look_up, "", LookupRequest(T, (b"k",), 1, AT)),
    "checksum": (TabletService._checksum, "", ChecksumRequest(T, AT)),
    "split keys": (TabletService._split_keys, "", SplitKeysRequest(T, SPLIT_BYTES_MIN, None, None)),
}


class World:
    """A replica each read of which raises this error, on a node whose pool works at once."""

    def __init__(self, error: StelaeError, *, in_memory: bool) -> None:
        self.failures: list[str] = []
        self.refused: list[Exception] = []
        reads = ("scan", "diff", "lookup", "checksum", "split_keys")
        store = MagicMock(**dict.fromkeys((f"{name}.side_effect" for name in reads), error))
        store.scan_inline.return_value = store.diff_inline.return_value = None
        store.lookup_inline.side_effect = [error] if in_memory else None
        store.lookup_inline.return_value = FoundRows(MagicMock(), (None,), unread=(0,))
        self.replica = MagicMock(
            applier=MagicMock(store=store, timestamp=2 * AT, applied=OpId(1, 1)),
            log_only=False,
            state=ReplicaState.RUNNING,
            failure="",
            read_faults=ReadFaults(self.failures.append, self.failures.append),
        )
        node: Any = MagicMock(replicas={T: self.replica})
        node.scans.run = self._run
        node.turns.now_us.return_value = 0
        node.turns.defer = lambda call: call()
        self.service = TabletService(node, MagicMock())

    @staticmethod
    def _run(_key: str, work: Any, done: Any) -> None:
        try:
            result = work()
        except Exception as raised:
            result = raised
        done(result)

    def ask(self, name: str) -> None:
        handler, kind, asked = REQUESTS[name]
        request: Any = MagicMock(body=[encode(asked)], kind=kind, sender=NodeId("me"), open=True)
        request.refuse = self.refused.append
        handler(self.service, request)


@pytest.mark.parametrize("name", REQUESTS)
def test_damage_that_a_request_finds_fails_the_replica(name: str) -> None:
    world = World(DAMAGE, in_memory=name == "lookup in memory")
    world.ask(name)
    assert world.refused == [DAMAGE]
    (failure,) = world.failures
    assert failure == f"damage found: {DAMAGE}" and world.replica.read_faults.explain(failure)


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "lookup in memory"])
def test_reads_that_the_disk_fails_in_a_row_fail_the_replica(name: str) -> None:
    world = World(DISK, in_memory=False)
    for _ in range(READ_ERRORS_MAX - 1):
        world.ask(name)
    assert not world.failures
    world.ask(name)
    assert len(world.failures) == 1 and "reads in a row" in world.failures[0]
