"""How the nodes of a cluster are asked for their state."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from stelae.check.cluster_state import ask_nodes
from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId

OLD, NEW, OTHER = NodeId("0" * 32), NodeId("1" * 32), NodeId("2" * 32)


class OneNodePerAddress:
    """A connection to which the node ``NEW`` answers at the address that ``OLD`` had."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()

    async def reach(self, address: str, *, deadline_ms: int) -> NodeId:
        self.reached[address] += 1
        await asyncio.sleep(0)
        return {"a:1": NEW, "b:1": OTHER}[address]

    async def status(self, node_id: NodeId, *, deadline_ms: int) -> tuple[Any, ...]:
        return ()

    async def ask(self, *arguments: Any, **options: Any) -> Any:
        raise Unavailable("it does not say")


def test_a_server_that_came_back_under_a_new_uuid_at_its_old_address_answers_for_itself() -> None:
    """A second connection to it would end the first, and one of the two questions would fail."""
    connection: Any = OneNodePerAddress()
    found = asyncio.run(ask_nodes(connection, [(OLD, "a:1"), (NEW, "a:1"), (OTHER, "b:1")]))
    assert connection.reached == {"a:1": 1, "b:1": 1}
    assert [found[node].problem for node in (OLD, NEW, OTHER)] == [f"node {NEW} has its address now", "", ""]
