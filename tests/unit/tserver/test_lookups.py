"""Lookups as a tablet server answers them: one read index for a turn, and the disk off the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.host.replica_state import ReplicaState
from stelae.protocol.codec import decode
from stelae.protocol.lookup_messages import LookupReply, LookupRequest
from stelae.rows.keys import encode_key
from stelae.server.tserver.lookups import LOOP_US, Lookups
from stelae.spi.errors import NotLeader, StorageError, TooOld, Unavailable
from stelae.spi.ids import TabletId
from stelae.spi.schema import Schema
from stelae.spi.store import FoundRows
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness, upsert
from stelae.testing.conformance.store_shapes import changed
from stelae_store_columnar import ColumnarStore
from stelae_store_columnar.config import ColumnarConfig

WIDER: Schema = changed(SCHEMA, add={"id": 4, "name": "price", "type": "double", "default": 1.5}, rename={})
T = TabletId("t")
AT = 10


class Node:
    """A node whose turns end, and whose pool works, when the test says so."""

    def __init__(self) -> None:
        self.deferred: deque[Callable[[], None]] = deque()
        self.works: list[tuple[str, Callable[[], Any], Callable[[Any], None]]] = []
        self.now_us = 0
        self.later: list[Callable[[], None]] = []
        self.turns: Any = SimpleNamespace(
            defer=self.deferred.append,
            now_us=lambda: self.now_us,
            call_at=lambda when_us, call: self.later.append(call),
        )
        self.scans: Any = SimpleNamespace(run=lambda *work: self.works.append(work))
        self.time: Any = SimpleNamespace(now=lambda: 1 << 60)
        self.config: Any = SimpleNamespace(clock=SimpleNamespace(clock_error_ms_max=10))
        self.lookups = Lookups(self)

    def end_turn(self) -> None:
        while self.deferred:
            self.deferred.popleft()()

    def next_turn(self) -> None:
        later, self.later = self.later, []
        for call in later:
            call()

    def work(self) -> None:
        works, self.works = self.works, []
        for _, work, done in works:
            try:
                result = work()
            except Exception as error:
                result = error
            done(result)


class Replica:
    """A replica whose leadership is confirmed when the test says so."""

    def __init__(self, stored: HarnessReplica) -> None:
        self.stored = stored
        self.applier = SimpleNamespace(store=stored.store, timestamp=AT, applied=stored.store.applied)
        self.state = ReplicaState.RUNNING
        self.core = SimpleNamespace(status=lambda: SimpleNamespace(last=stored.store.applied))
        self.reads: list[Callable[[Any], None]] = []

    def read_index(self, done: Callable[[Any], None], *, by_lease: bool = True) -> None:
        self.reads.append(done)

    def confirm(self, outcome: Any = AT) -> None:
        reads, self.reads = self.reads, []
        for done in reads:
            done(outcome)


def with_rows(rows: int = 200) -> Replica:
    """A replica with even keys in blocks, of which nothing is decoded."""
    stored = StoreHarness(ColumnarStore, lambda: ColumnarConfig(row_group_rows=64)).replica()
    stored.write(upsert(*((2 * n, "a", n) for n in range(rows))))
    stored.flush()
    return Replica(stored)


class Asker:
    """Asks for keys, and keeps the answers in the order of the requests."""

    def __init__(self, node: Node, replica: Any) -> None:
        self.node, self.replica = node, replica
        self.answers: list[Any] = []
        self.given_up: set[int] = set()

    def ask(self, *keys: int, at: int | None = None, version: int = SCHEMA.version) -> None:
        asked = LookupRequest(T, tuple([encode_key(SCHEMA, (key,)) for key in keys]), version, at)
        place = len(self.answers)
        self.answers.append(None)

        def done(found: bytes | Exception) -> None:
            assert self.answers[place] is None, "answered twice"
            self.answers[place] = found if isinstance(found, Exception) else decode(found[0], LookupReply)

        self.node.lookups.look_up(self.replica, asked, done, lambda: place not in self.given_up)

    @property
    def rows(self) -> list[Any]:
        return [None if one is None else [row and tuple(row) for row in one.rows] for one in self.answers]


def test_the_latest_rows_of_one_turn_share_a_read_index_that_is_asked_for_behind_all_of_them() -> None:
    node, replica = Node(), with_rows()
    replica.stored.store.lookup([encode_key(SCHEMA, (2,))])
    asker = Asker(node, replica)
    asker.ask(2)
    asker.ask(4, 5)
    assert not replica.reads
    node.end_turn()
    assert len(replica.reads) == 1 and asker.rows == [None, None]
    asker.ask(6)
    replica.confirm()
    assert asker.rows == [[(2, "a", 1)], [(4, "a", 2), None], None]
    node.end_turn()
    replica.confirm()
    assert asker.rows[2] == [(6, "a", 3)] and not node.works


def test_nothing_is_answered_by_a_leader_that_cannot_confirm_its_term() -> None:
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    asker.ask(2)
    asker.ask(4)
    node.end_turn()
    replica.confirm(NotLeader("other"))
    assert [type(answer) for answer in asker.answers] == [NotLeader, NotLeader]


def test_what_needs_the_disk_is_one_piece_of_work_for_all_requests_of_a_read_index() -> None:
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    asker.ask(2, 3)
    asker.ask(300, -5)
    asker.ask(-5)
    node.end_turn()
    replica.confirm()
    assert asker.rows == [None, None, [None]] and len(node.works) == 1
    node.work()
    assert asker.rows == [[(2, "a", 1), None], [(300, "a", 150), None], [None]]
    asker.ask(4)
    node.end_turn()
    replica.confirm()
    assert asker.rows[3] == [(4, "a", 2)] and not node.works


def test_a_request_that_is_given_up_before_its_turn_is_not_read() -> None:
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    asker.ask(2)
    asker.ask(300)
    node.end_turn()
    replica.confirm()
    asker.given_up.add(0)
    node.work()
    assert asker.rows == [None, [(300, "a", 150)]]
    asker.ask(4)
    node.end_turn()
    replica.confirm()
    assert node.works, "the block of the keys 2 and 4 was not read"


def of_slow_lookups(monkeypatch: pytest.MonkeyPatch) -> tuple[Node, Replica, Asker]:
    """A node whose store takes half of the loop's time for each request."""
    node, replica = Node(), with_rows()
    store = replica.stored.store
    inner = store.lookup_inline

    def slow(keys: Sequence[bytes], at: int | None) -> FoundRows:
        node.now_us += LOOP_US // 2
        return inner(keys, at)

    monkeypatch.setattr(store, "lookup_inline", slow)
    return node, replica, Asker(node, replica)


def test_lookups_make_room_for_other_work_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    node, replica, asker = of_slow_lookups(monkeypatch)
    for key in (-2, -4, 2, -6, -8):
        asker.ask(key)
    node.end_turn()
    replica.confirm()
    assert asker.rows == [[None], [None], None, None, None] and not node.works
    asker.ask(-10)
    node.end_turn()
    replica.confirm()
    assert asker.rows[2:] == [None, None, None, None], "a later request must not begin a turn of its own"
    node.next_turn()
    assert asker.rows[2:] == [None, [None], None, None] and not node.works
    node.next_turn()
    assert asker.rows[2:] == [None, [None], [None], [None]]
    node.work()
    assert asker.rows[2] == [(2, "a", 1)] and not node.later


def test_answers_are_sent_after_some_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients got all answers of a turn at its end, and had nothing to do until then."""
    monkeypatch.setattr("stelae.server.tserver.lookups.LOOP_KEYS", 3)
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    for keys in ((-2,), (-4, -6), (-8,), (-10, -12, -14, -16), (-18,)):
        asker.ask(*keys)
    node.end_turn()
    replica.confirm()
    assert [rows is not None for rows in asker.rows] == [True, True, False, False, False]
    node.next_turn()
    assert [rows is not None for rows in asker.rows] == [True, True, True, True, False]
    node.next_turn()
    assert asker.rows[4] == [None] and not node.later and not node.works


def test_lookups_that_wait_for_the_next_turn_are_refused_if_their_replica_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, replica, asker = of_slow_lookups(monkeypatch)
    for key in (-2, -4, 2, -6):
        asker.ask(key)
    node.end_turn()
    replica.confirm()
    asker.given_up.add(2)
    replica.state = ReplicaState.STOPPING
    node.next_turn()
    assert asker.answers[2] is None
    assert isinstance(asker.answers[3], Unavailable) and not node.works and not node.later


def test_a_settled_time_needs_no_message_and_a_later_one_a_majority() -> None:
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    asker.ask(2, at=AT)
    asker.ask(2, at=AT - 1)
    node.work()
    assert asker.rows == [[(2, "a", 1)], [None]] and not replica.reads
    asker.ask(2, at=AT + 1)
    assert len(replica.reads) == 1 and asker.answers[2] is None
    replica.confirm()
    assert asker.rows[2] == [(2, "a", 1)]


def test_a_time_below_the_floor_is_too_old_on_the_loop_and_on_a_worker() -> None:
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    asker.ask(2, at=AT)
    replica.stored.store.set_history_floor(AT + 1)
    node.work()
    asker.ask(2, at=AT)
    assert [type(answer) for answer in asker.answers] == [TooOld, TooOld]


def test_a_disk_that_fails_fails_the_requests_that_need_it() -> None:
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    asker.ask(2)
    asker.ask(-5)
    node.end_turn()
    replica.confirm()
    replica.stored.disk.faults.fail_reads(count=1 << 30)
    node.work()
    assert isinstance(asker.answers[0], StorageError)
    assert asker.answers[1].rows == [None]


@pytest.mark.parametrize("state", [ReplicaState.STOPPING, ReplicaState.FAILED])
def test_rows_of_a_store_that_may_be_closed_by_now_are_not_sent(state: ReplicaState) -> None:
    """A closed store answers that there are no rows."""
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    asker.ask(2)
    node.end_turn()
    replica.confirm()
    replica.state = state
    replica.stored.store.close()
    node.work()
    assert isinstance(asker.answers[0], Unavailable)


@pytest.mark.parametrize("state", [ReplicaState.STOPPING, ReplicaState.FAILED])
def test_a_replica_that_has_stopped_before_its_time_was_chosen_is_not_read(state: ReplicaState) -> None:
    node, replica = Node(), with_rows()
    replica.stored.store.lookup([encode_key(SCHEMA, (2,))])
    asker = Asker(node, replica)
    asker.ask(2)
    node.end_turn()
    replica.state = state
    replica.confirm()
    (answer,) = asker.answers
    assert isinstance(answer, Unavailable) and not node.works


def test_a_pool_that_is_closed_fails_the_request() -> None:
    node, replica = Node(), with_rows()
    asker = Asker(node, replica)
    asker.ask(2)
    node.end_turn()
    replica.confirm()
    node.works[0][2](Unavailable("the node is stopping"))
    assert isinstance(asker.answers[0], Unavailable)


def test_the_columns_are_named_if_the_client_knows_another_version() -> None:
    node, replica = Node(), with_rows()
    replica.stored.change_schema(WIDER)
    asker = Asker(node, replica)
    asker.ask(2, at=AT)
    asker.ask(2, at=AT, version=WIDER.version)
    node.work()
    assert [answer.ids for answer in asker.answers] == [WIDER.layout.ids, None]
    assert asker.rows == [[(2, "a", 1, 1.5)]] * 2


def test_a_schema_that_changes_while_some_keys_are_read_is_that_of_all_rows() -> None:
    node, replica = Node(), with_rows()
    replica.stored.write(upsert((2, "b", 7)), timestamp=AT)
    asker = Asker(node, replica)
    asker.ask(2, 4)
    node.end_turn()
    replica.confirm()
    assert len(node.works) == 1
    replica.stored.change_schema(WIDER)
    node.work()
    assert asker.answers[0].ids == WIDER.layout.ids
    assert asker.rows == [[(2, "b", 7, 1.5), (4, "a", 2, 1.5)]]


def test_an_engine_that_raises_fails_only_the_request() -> None:
    node, replica = Node(), with_rows()

    def broken(keys: Sequence[bytes], at: int | None) -> FoundRows:
        raise ZeroDivisionError

    replica.applier.store = SimpleNamespace(lookup_inline=broken)
    asker = Asker(node, replica)
    asker.ask(2, at=AT)
    assert isinstance(asker.answers[0], ZeroDivisionError)
