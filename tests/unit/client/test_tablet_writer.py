"""Writes that are not answered: whom the writer asks next, and what it says in the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from stelae.client.leader_tracker import LeaderTracker
from stelae.client.tablet_writer import TabletWriter
from stelae.client.turns import ClientTurns
from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.rows.operation_encoding import operation
from stelae.spi.errors import DeadlineExceeded, Overloaded, StelaeError, TooLarge, Unavailable
from stelae.spi.ids import ClientId, NodeId, TabletId
from stelae.spi.write import OpKind

NODES = [NodeId("a"), NodeId("b")]
AT_ONCE_S = 1e-9
"""Too short for a second attempt, whatever the machine does."""


class Refusing:
    """A messenger whose peers give every call the same error."""

    def __init__(self, error: StelaeError) -> None:
        self._error = error

    def call(self, to: NodeId, kind: str, frames: Sequence[Any], *, deadline_ms: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(self._error)
        return future


async def refused(error: StelaeError) -> tuple[str, NodeId]:
    """Write once; return what the caller is told, and whom the writer would ask next."""
    tracker = LeaderTracker(NODES)
    writer = TabletWriter(
        Refusing(error),
        tracker,
        tablet_id=TabletId("t"),
        client_id=ClientId("c"),
        schema_version=1,
        rng=random.Random(1),
        defer=ClientTurns(asyncio.get_running_loop()).defer,
    )
    with pytest.raises(DeadlineExceeded) as caught:
        await writer.write(operation(OpKind.INSERT, [(1,)]), AT_ONCE_S)
    return str(caught.value), tracker.current


def test_who_gave_up_is_told_what_the_last_node_said() -> None:
    told, _ = asyncio.run(refused(Unavailable("the replica is stopping")))
    assert told == "no leader accepted the write in time; the last answer was: the replica is stopping"


def test_the_deadline_of_a_write_passes_while_the_machine_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the loop stops meanwhile."""
    now_s, calls = 0.0, 0

    class Suspended(Refusing):
        def call(self, to: NodeId, kind: str, frames: Sequence[Any], *, deadline_ms: int) -> asyncio.Future[Any]:
            nonlocal now_s, calls
            now_s, calls = 7200.0, calls + 1
            return super().call(to, kind, frames, deadline_ms=deadline_ms)

    async def write() -> None:
        writer = TabletWriter(
            Suspended(Unavailable("the connection was lost")),
            LeaderTracker(NODES),
            tablet_id=TabletId("t"),
            client_id=ClientId("c"),
            schema_version=1,
            rng=random.Random(1),
            defer=ClientTurns(asyncio.get_running_loop()).defer,
        )
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(writer.write(operation(OpKind.INSERT, [(1,)]), 60.0), 5.0)

    monkeypatch.setattr("stelae.client.tablet_writer.monotonic_s", lambda: now_s)
    asyncio.run(write())
    assert calls == 1


def test_a_node_that_cannot_serve_is_not_asked_again_at_once() -> None:
    assert asyncio.run(refused(Unavailable("the replica is stopping")))[1] == NODES[1]


def test_a_leader_that_pushes_back_is_still_the_one_to_ask() -> None:
    told, next_asked = asyncio.run(refused(Overloaded("the log queue is full")))
    assert told.endswith("the log queue is full") and next_asked == NODES[0]


def test_a_node_that_has_let_go_of_its_replica_is_not_asked_again_at_once() -> None:
    said, current = asyncio.run(refused(NoSuchTablet("no tablet 't' on this node")))
    assert "no tablet 't'" in said and current == NODES[1]


class Saying:
    """A messenger whose peers give the errors that are due, and the last one from then on."""

    def __init__(self, *errors: StelaeError) -> None:
        self._errors = [*errors]

    def call(self, to: NodeId, kind: str, frames: Sequence[Any], *, deadline_ms: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(self._errors.pop(0) if len(self._errors) > 1 else self._errors[0])
        return future


def writer_of(caller: Any) -> TabletWriter:
    """A writer of one tablet whose calls ``caller`` answers."""
    return TabletWriter(
        caller,
        LeaderTracker(NODES),
        tablet_id=TabletId("t"),
        client_id=ClientId("c"),
        schema_version=1,
        rng=random.Random(1),
        defer=ClientTurns(asyncio.get_running_loop()).defer,
    )


@pytest.mark.parametrize(
    ("before", "told"),
    [((), NoSuchTablet), ((Unavailable("no answer"),), DeadlineExceeded), ((Overloaded("full"),), DeadlineExceeded)],
)
def test_a_tablet_that_no_member_has_ends_a_write_unless_somebody_may_have_taken_it(
    before: tuple[StelaeError, ...], told: type[StelaeError]
) -> None:
    """A write to a dropped range was asked for until its time was over, and its outcome was said to be unknown."""

    async def run() -> None:
        caller = Saying(*before, NoSuchTablet("no tablet 't' on this node"))
        writer = writer_of(caller)
        with pytest.raises(told):
            await writer.write(operation(OpKind.INSERT, [(1,)]), 0.2)
        assert writer.pending == 0

    asyncio.run(run())


@pytest.mark.parametrize(("gone", "told"), [(True, NoSuchTablet), (False, DeadlineExceeded)])
def test_a_write_that_somebody_may_have_taken_ends_when_its_tablet_is_known_to_be_gone(
    gone: bool, told: type[StelaeError]
) -> None:
    """A writer of a dropped table went on until its timeout, and the outcome was said to be unknown."""

    async def run() -> None:
        asked = 0

        async def is_gone() -> bool:
            nonlocal asked
            asked += 1
            return gone

        caller = Saying(Unavailable("no answer"), NoSuchTablet("no tablet 't' on this node"))
        writer = writer_of(caller)
        writer.is_gone = is_gone
        with pytest.raises(told):
            await writer.write(operation(OpKind.INSERT, [(1,)]), 300.0 if gone else 0.2)
        assert writer.pending == 0 and asked

    asyncio.run(run())


class Unable:
    """A messenger that cannot send what it is given."""

    def call(self, to: NodeId, kind: str, frames: Sequence[Any], *, deadline_ms: int) -> asyncio.Future[Any]:
        raise TooLarge("body frame", 70_000_000, 68_157_440)


def test_a_request_that_cannot_be_sent_ends_its_writes_with_the_reason() -> None:
    """The error was raised where requests are made, after the operations had left the queue: they waited for ever."""

    async def story() -> None:
        writer = writer_of(Unable())
        async with asyncio.timeout(20):
            with pytest.raises(TooLarge, match="70000000 bytes"):
                await writer.write(operation(OpKind.INSERT, [(1,)]), 300.0)
        assert not writer.pending

    asyncio.run(story())
