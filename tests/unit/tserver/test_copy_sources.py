"""How the target of a copy reaches the sources: the keep-alive of a session."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.protocol.codec import decode, encode
from stelae.protocol.copy_messages import ASK_COPY, AskSource
from stelae.server.tserver.copy_sources import BEGIN_DEADLINE_MS, CONNECT_US_MAX, MessengerSources
from stelae.spi.copy import KeepAlive
from stelae.spi.copy_plan import CopyOffer, CopySessionEnded, CopySnapshot
from stelae.spi.ids import LogId, NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae.spi.wal import SnapshotUnit
from stelae.wire.call_retries import Response

BEGIN_US = CONNECT_US_MAX + BEGIN_DEADLINE_MS * 1000
"""How long the links to a source are kept for its offer."""

TABLET, SOURCE = TabletId("t1"), NodeId("a" * 32)
SNAPSHOT: Any = SimpleNamespace(spec=CopySnapshot, committed_config=TabletConfig(op_id=OpId(1, 1), members=()))


def offer(ttl_ms: int) -> CopyOffer:
    return CopyOffer(source=SOURCE, session="run-1", ttl_ms=ttl_ms, snapshot=SNAPSHOT)


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
        units = tuple(SnapshotUnit(name=f"log/{n}", size_bytes=1, digest="d" * 64) for n in range(items))
        snapshot = CopySnapshot(
            tablet_id=TABLET,
            log=LogId(TABLET, 1),
            base=OpId(0, 0),
            last=OpId(1, 1),
            term=1,
            committed_config=TabletConfig(op_id=OpId(1, 1), members=()),
            facts=b"",
            items=units,
        )
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
                wire=SimpleNamespace(deadline_ms_max=600_000),
                store=SimpleNamespace(name="memory", engine=SimpleNamespace(capabilities=frozenset())),
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
