"""The least engines and batcher that a node can run: everything in memory, one voter, whatever is asked done.

Made of ``stelae.spi`` alone. What a running node never calls is not there; calling it is a failure."""

from __future__ import annotations

import abc
import random
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from stelae.spi.consensus import (
    Accepted,
    ConsensusCore,
    ConsensusEngine,
    HardState,
    LogAppend,
    LogView,
    Ready,
    Role,
    Status,
)
from stelae.spi.consensus_events import Applied, Event, Persisted, Propose
from stelae.spi.ids import ClientId, LogId, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig
from stelae.spi.payload import OpGroup, PayloadClient, PayloadSequenceRange, WritePayload, encode_payload
from stelae.spi.rows import RowBatch
from stelae.spi.schema import Schema
from stelae.spi.services import EngineServices
from stelae.spi.store import ApplyEntry, ApplyResult, TabletStore
from stelae.spi.wal import Append, Durable, LogState, Outcome, WalEngine
from stelae.spi.write import OpKind, SequenceRange

Fake = TypeVar("Fake", bound=type[Any])


def never_called(cls: Fake) -> Fake:
    """Fill what is abstract with methods that fail."""

    def fails(name: str) -> Any:
        def method(*_: object, **__: object) -> None:
            raise AssertionError(f"{cls.__name__}.{name} was called")

        return method

    for name in cls.__abstractmethods__:
        setattr(cls, name, fails(name))
    return abc.update_abstractmethods(cls)


@never_called
class FakeWal(WalEngine):
    """Logs in memory; every commit counts as durable."""

    name = "fake"

    def __init__(self) -> None:
        self.entries: dict[LogId, list[Entry]] = {}
        self.base: dict[LogId, OpId] = {}

    @classmethod
    def open(cls, directory: str, config: Any, services: EngineServices) -> Self:
        return cls()

    def logs(self) -> Mapping[LogId, LogState]:
        return {
            log: LogState(base=base, last=entries[-1].op_id if entries else base)
            for log, base in self.base.items()
            for entries in [self.entries[log]]
        }

    def create(self, log: LogId, base: OpId) -> None:
        self.entries[log], self.base[log] = [], base

    def commit(self, group: Mapping[LogId, Append], *, sync: bool) -> dict[LogId, Outcome]:
        assert sync, "a node syncs every group"
        for log, append in group.items():
            self.entries[log].extend(append.entries)
        return {log: Durable(self.entries[log][-1].op_id) for log in group}

    def close(self) -> None:
        pass


@never_called
class SoloCore(ConsensusCore):
    """Leads from the start; what is durable here is committed."""

    def __init__(self, node_id: NodeId, term: int, last: OpId, config: TabletConfig) -> None:
        self._node_id = node_id
        self._config = config
        self._term = term
        self._last = last
        self._commit = self._committed = self._applied = last.index
        self._first_of_term = last.index + 1
        self._hard_state: HardState | None = HardState(term, node_id)
        self._pending = [self._entry(EntryKind.NOOP, b"")]
        self._accepted: list[Accepted] = []
        self._ready_id = 0
        self._ends: dict[int, int] = {}

    def step(self, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Propose(proposals=proposals):
                    for one in proposals:
                        self._pending.append(self._entry(one.kind, one.body))
                        self._accepted.append(Accepted(one.token, self._last))
                case Persisted(ready_id=ready_id):
                    self._commit = max(self._commit, self._ends[ready_id])
                case Applied(index=index):
                    self._applied = index

    def take_ready(self) -> Ready | None:
        if not self._pending and self._commit == self._committed:
            return None
        self._ready_id += 1
        self._ends[self._ready_id] = self._last.index
        ready = Ready(
            id=self._ready_id,
            hard_state=self._hard_state,
            append=LogAppend(entries=tuple(self._pending)) if self._pending else None,
            commit=self._commit,
            accepted=tuple(self._accepted),
        )
        self._hard_state, self._pending, self._accepted = None, [], []
        self._committed = self._commit
        return ready

    def next_deadline(self) -> int | None:
        return None

    def status(self) -> Status:
        return Status(
            node_id=self._node_id,
            role=Role.LEADER,
            term=self._term,
            voted_for=self._node_id,
            leader=self._node_id,
            last=self._last,
            durable_index=self._commit,
            commit=self._commit,
            applied=self._applied,
            serving=self._commit >= self._first_of_term,
            config=self._config,
            committed_config=self._config,
        )

    def _entry(self, kind: EntryKind, body: bytes) -> Entry:
        self._last = OpId(self._term, self._last.index + 1)
        return Entry(self._last, kind, 0, body)


@never_called
class SoloConsensus(ConsensusEngine):
    """Consensus with oneself."""

    name = "fake"
    message_types: ClassVar[Mapping[str, type[msgspec.Struct]]] = {}

    @classmethod
    def restore(
        cls,
        *,
        node_id: NodeId,
        hard_state: HardState,
        log: LogView,
        commit: int,
        applied: int,
        committed_config: TabletConfig,
        config: Any,
        rng: random.Random,
        now_us: int,
    ) -> ConsensusCore:
        assert committed_config.voters() == (node_id,)
        return SoloCore(node_id, hard_state.term + 1, log.last, committed_config)


@never_called
class FakeStore(TabletStore):
    """Keeps the rows that it was given, in order."""

    name = "fake"

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._applied = OpId(0, 0)
        self.rows: list[tuple[Any, ...]] = []

    @classmethod
    def open(
        cls,
        directory: str,
        manifest: bytes,
        flushed: OpId,
        schemas: Mapping[int, Schema],
        config: Any,
        services: EngineServices,
    ) -> Self:
        return cls(schemas[max(schemas)])

    @property
    def applied(self) -> OpId:
        return self._applied

    @property
    def schema(self) -> Schema:
        return self._schema

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        for entry in entries:
            assert not isinstance(entry.change, Schema)
            for group in entry.change.groups:
                self.rows.extend(group.rows(self._schema).to_rows())
            self._applied = entry.op_id
        return [ApplyResult(entry.op_id) for entry in entries]

    def memory_bytes(self) -> int:
        return 0

    def close(self) -> None:
        pass


class FakeBatcher:
    """One payload of inserts by one client in row form, which fit: nothing is checked."""

    def __init__(self, schema: Schema, key_bytes_max: int | None, partition: object) -> None:
        self.schema = schema
        self._clients: set[PayloadClient] = set()
        self._runs: list[PayloadSequenceRange] = []
        self._rows: list[tuple[Any, ...]] = []
        self._tokens: list[Any] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(
        self, client_id: ClientId, first_incomplete: int, run: SequenceRange, digests: tuple[int, ...], token: Any
    ) -> None:
        assert run.kind is OpKind.INSERT
        given = [msgspec.msgpack.decode(op, type=list[tuple[Any, ...]]) for op in run.ops]
        self._clients.add(PayloadClient(client_id, first_incomplete))
        self._runs.append(PayloadSequenceRange(0, run.first_sequence, tuple(map(len, given)), digests))
        self._rows += [row for rows in given for row in rows]
        self._tokens.append(token)

    def build(self) -> list[tuple[bytes, list[Any]]]:
        rows = RowBatch.from_equal_rows(self.schema.layout, self._rows)
        group = OpGroup(OpKind.INSERT, None, len(rows), rows.to_ipc())
        (client,) = self._clients
        payload = WritePayload(self.schema.version, (client,), tuple(self._runs), (group,))
        built = (encode_payload(payload), self._tokens)
        self._clients, self._runs, self._rows, self._tokens = set(), [], [], []
        return [built]
