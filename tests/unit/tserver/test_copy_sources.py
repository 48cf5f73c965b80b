"""How the target of a copy reaches the sources: the keep-alive of a session."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.protocol.codec import decode
from stelae.protocol.copy_messages import ASK_COPY, AskSource
from stelae.server.tserver.copy_sources import MessengerSources
from stelae.spi.copy import KeepAlive
from stelae.spi.copy_plan import CopyOffer, CopySessionEnded, CopySnapshot
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig

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


@pytest.mark.parametrize(("ttl_ms", "deadline_ms"), [(60_000, 20_000), (3_600_000, 30_000), (2, 1)])
def test_a_keep_alive_is_answered_before_the_next_one_is_due(ttl_ms: int, deadline_ms: int) -> None:
    async def story() -> None:
        messenger = Messenger()
        config = SimpleNamespace(wire=SimpleNamespace(deadline_ms_max=600_000))
        node: Any = SimpleNamespace(messenger=messenger, config=config)
        found: list[Any] = []
        MessengerSources(node).keep_alive(offer(ttl_ms), found.append)
        assert messenger.calls == [(SOURCE, ASK_COPY, AskSource(request=KeepAlive("run-1")), deadline_ms)]
        ended = CopySessionEnded("no such session")
        messenger.call_of.set_exception(ended)
        await asyncio.sleep(0)
        assert found == [ended]

    asyncio.run(story())
