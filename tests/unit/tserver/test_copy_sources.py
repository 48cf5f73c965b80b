"""How the target of a copy reaches the sources: the keep-alive of a session."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.protocol.codec import decode, encode
from stelae.protocol.copy_messages import ASK_COPY, AskSource
from stelae.server.tserver.copy_sources import (
    BEGIN_AGAIN_US,
    BEGIN_DEADLINE_MS,
    BEGIN_MS_MAX,
    CONNECT_US_MAX,
    MessengerSources,
)
from stelae.spi.copy import KeepAlive
from stelae.spi.copy_plan import CopyOffer, CopySessionEnded, CopySnapshot
from stelae.spi.errors import DeadlineExceeded, Overloaded, StelaeError
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.wal import SnapshotUnit
from stelae.wire.call_retries import Response
from stelae_store_memory import MemoryStore

BEGIN_US = CONNECT_US_MAX + BEGIN_MS_MAX * 1000
"""How long the links to a source are kept for its offer."""

TABLET, SOURCE = TabletId("t1"), NodeId("a" * 32)
SNAPSHOT: Any = SimpleNamespace(spec=CopySnapshot, committed_config=TabletConfig(op_id=OpId(1, 1), members=()))


def offer(ttl_ms: int) -> CopyOffer:
    return CopyOffer(source=SOURCE, session="run-1", ttl_ms=ttl_ms, snapshot=SNAPSHOT)


def _snapshot(items: int) -> CopySnapshot:
    return CopySnapshot(
        tablet_id=TABLET,
        log=LogId(TABLET, 1),
        base=OpId(0, 0),
        last=OpId(1, 1),
        term=1,
        committed_config=TabletConfig(op_id=OpId(1, 1), members=()),
        facts=b"",
        items=tuple(SnapshotUnit(name=f"log/{n}", size_bytes=1, digest="d" * 64) for n in range(items)),
    )


class Messenger:
    """Notes the calls. Tests answer them."""

    def __init__(self) -> None:
        self.calls: list[tuple[NodeId, str, AskSource, int]] = []
        self.call_of: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def call(self, node: NodeId, kind: str, body: list[bytes], *, deadline_ms: int, lane: Any) -> asyncio.Future[Any]:
        self.calls.append((node, kind, decode(memoryview(body[0]), AskSource), deadline_ms))
        return self.call_of


@pytest.mark.parametrize(("items", "off_loop"), [(1, False), (1_000, True)])
def test_a_large_offer_is_decoded_by_a_thread_of_copies_and_a_small_one_at_once(*, items: int, off_loop: bool) -> None:
    """100 000 items take 0.08 s to decode on the event loop, on which all tablets of the node wait."""

    async def story() -> None:
        snapshot = _snapshot(items)
        sent = CopyOffer(source=SOURCE, session="run-1", ttl_ms=1, snapshot=snapshot)
        messenger: Any = Messenger()
        messenger.connected = lambda *_lane: object()
        members = MagicMock()
        messenger.call = lambda *_call, **_more: messenger.call_of
        pooled: list[str] = []

        def run(key: str, work: Any, done: Any) -> None:
            pooled.append(key)
            done(work())

        node: Any = SimpleNamespace(
            messenger=messenger,
            peers=SimpleNamespace(members=members),
            config=SimpleNamespace(
                wire=SimpleNamespace(deadline_ms_max=600_000), store=SimpleNamespace(name="memory", engine=MemoryStore)
            ),
            turns=SimpleNamespace(now_us=lambda: 0),
            copies=SimpleNamespace(run=run),
        )
        found: list[Any] = []
        fields: Any = None
        MessengerSources(node).begin(Member(node_id=SOURCE, address="a:1"), TABLET, found.append)
        messenger.call_of.set_result(Response(sender=SOURCE, body=[encode(sent)], fields=fields))
        await asyncio.sleep(0)
        members.reach.assert_called_once_with(SOURCE, "", BEGIN_US)
        assert found == [sent] and pooled == ([f"tablet/{TABLET}"] if off_loop else [])

    asyncio.run(story())


@pytest.mark.parametrize(("ttl_ms", "deadline_ms"), [(60_000, 20_000), (3_600_000, 30_000), (2, 1)])
def test_a_keep_alive_is_answered_before_the_next_one_is_due(ttl_ms: int, deadline_ms: int) -> None:
    async def story() -> None:
        messenger = Messenger()
        config = SimpleNamespace(wire=SimpleNamespace(deadline_ms_max=600_000))
        members = MagicMock()
        node: Any = SimpleNamespace(
            messenger=messenger,
            config=config,
            peers=SimpleNamespace(members=members),
            turns=SimpleNamespace(now_us=lambda: 7),
        )
        found: list[Any] = []
        MessengerSources(node).keep_alive(offer(ttl_ms), found.append)
        members.reach.assert_called_once_with(SOURCE, "", 7 + ttl_ms * 1000)
        assert messenger.calls == [(SOURCE, ASK_COPY, AskSource(request=KeepAlive("run-1")), deadline_ms)]
        ended = CopySessionEnded("no such session")
        messenger.call_of.set_exception(ended)
        await asyncio.sleep(0)
        assert found == [ended]

    asyncio.run(story())


LOST, TAKING = DeadlineExceeded("no answer"), Overloaded("the snapshot is still being taken; ask again")
WHOLE_WAIT = 1 + BEGIN_MS_MAX // BEGIN_DEADLINE_MS


@pytest.mark.parametrize(
    ("answers", "ends", "pauses", "agrees"),
    [
        ([LOST, LOST, "offer"], "offer", 0, 9),
        ([LOST, TAKING, TAKING, "offer"], "offer", 2, 9),
        ([TAKING], TAKING, 0, 9),
        ([LOST] * WHOLE_WAIT, LOST, 0, WHOLE_WAIT),
        ([LOST, CopySessionEnded("gone")], CopySessionEnded, 0, 9),
        ([LOST], LOST, 0, 0),
        ([LOST, LOST, LOST], LOST, 0, 2),
        ([LOST, TAKING], TAKING, 0, 1),
        (["offer"], "offer", 0, 0),
    ],
)
def test_a_session_is_asked_for_again_if_a_message_was_lost_while_the_copy_agrees(
    answers: list[Any], ends: Any, pauses: int, agrees: int
) -> None:
    """A copy whose answer was lost held its slot for five minutes, and its leader could not begin another one.

    ``agrees``: how often the copy wants its source to be asked again."""
    asked: list[int] = []
    found: list[Any] = []

    async def story() -> None:
        now, timers, snapshot = [0], list[int](), _snapshot(1)
        sent = CopyOffer(source=SOURCE, session="run-1", ttl_ms=1, snapshot=snapshot)

        def call(*_call: Any, deadline_ms: int, **_more: Any) -> asyncio.Future[Any]:
            answer: Any = answers[len(asked)]
            asked.append(deadline_ms)
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            if isinstance(answer, StelaeError):
                now[0] += deadline_ms * 1000 if answer is LOST else 0
                future.set_exception(answer)
            else:
                fields: Any = None
                future.set_result(Response(sender=SOURCE, body=[encode(sent)], fields=fields))
            return future

        def call_at(when_us: int, ask: Any) -> None:
            timers.append(when_us - now[0])
            ask()

        node: Any = SimpleNamespace(
            messenger=SimpleNamespace(connected=lambda *_lane: object(), call=call),
            peers=SimpleNamespace(members=MagicMock()),
            config=SimpleNamespace(
                wire=SimpleNamespace(deadline_ms_max=600_000), store=SimpleNamespace(name="memory", engine=MemoryStore)
            ),
            turns=SimpleNamespace(now_us=lambda: now[0], call_at=call_at),
        )
        agreed = iter(range(agrees))
        member = Member(node_id=SOURCE, address="a:1")
        MessengerSources(node).begin(member, TABLET, found.append, ask_again=lambda: next(agreed, None) is not None)
        for _ in range(3 * len(answers)):
            await asyncio.sleep(0)
        assert timers == [BEGIN_AGAIN_US] * pauses
        assert found == [sent] if ends == "offer" else found[0] is ends or isinstance(found[0], ends)

    asyncio.run(story())
    assert len(found) == 1
    assert asked == [BEGIN_DEADLINE_MS] * len(answers)
