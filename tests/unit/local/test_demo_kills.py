"""Whom the demo kills: whoever leads when the kill is due, also if that is at once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from stelae.local import demo_kills
from stelae.protocol.tablet_messages import ReplicaReport
from stelae.spi.ids import TabletId

TABLET = TabletId("t")
LEADER = cast(ReplicaReport, object())


class PastIt:
    """A load that has long had the share of its rows that is waited for."""

    async def reached(self, share: float) -> None:
        """At once."""


class Alone:
    """Stands in for a cluster, a client and a listener, of which nothing is wanted here."""

    connection = None


def test_who_leads_is_looked_up_if_the_load_was_past_the_kill_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage of half a minute the single rows had passed the share of the second kill: nobody seemed to
    lead, and the demo ended with an error."""

    async def leaders(connection: object, nodes: object) -> dict[TabletId, ReplicaReport]:
        await asyncio.sleep(0)
        return {TABLET: LEADER}

    monkeypatch.setattr(demo_kills, "leaders", leaders)

    async def due() -> Any:
        alone: Any = Alone()
        load: Any = PastIt()
        killer = demo_kills.DemoKills(alone, alone, "t", [TABLET], load, alone, outlive=False)
        return await killer._leaders_when_due([], 0.6)

    assert asyncio.run(due()) == {TABLET: LEADER}
