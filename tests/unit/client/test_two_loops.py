"""A client that is used on another event loop than its own says so, instead of waiting for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from stelae.client.connection import ConnectedTablet, Connection
from stelae.client.leader_tracker import LeaderTracker
from stelae.client.lookup_queue import LookupQueue
from stelae.spi.errors import CallerError
from stelae.spi.ids import TabletId
from stelae.spi.scan import ScanSpec
from stelae.spi.write import OpKind
from stelae.wire.messenger import Messenger
from tests.tablet_rows import write_to
from tests.unit.client.tablets import one_column
from tests.unit.wire.worlds import messenger

TABLET, SCHEMA = TabletId("t"), one_column("value", "double")


class World:
    """A client of one node, which answers nothing."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.tracker = LeaderTracker(connection.nodes)
        self.tablet = ConnectedTablet(connection, TABLET, SCHEMA, self.tracker)
        self.lookups: LookupQueue = connection.lookups(TABLET, SCHEMA)


async def write(world: World) -> object:
    return await asyncio.wait([write_to(world.tablet, OpKind.UPSERT, [(1, 2.0)])])


USES: dict[str, Callable[[World], Awaitable[object]]] = {
    "write": write,
    "look up": lambda world: world.lookups.add([b"k"], None, 60.0, lambda: world.tracker),
    "read a page": lambda world: world.tablet.page(ScanSpec(), timeout_s=60.0),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_client_of_another_event_loop_is_refused(use: Callable[[World], Awaitable[object]]) -> None:
    """Each ``asyncio.run`` of a notebook or a test has a loop of its own. A write in the second one waited for the
    first, which did not run any more."""
    own = asyncio.new_event_loop()
    node = own.run_until_complete(_node())
    world = own.run_until_complete(_world(node.bind("127.0.0.1:0")))

    async def on_another() -> None:
        for _ in range(2):
            async with asyncio.timeout(20):
                with pytest.raises(CallerError, match="another event loop"):
                    await use(world)

    asyncio.run(on_another())
    world.connection.close()
    node.close()
    own.close()


async def _node() -> Messenger:
    return messenger(1)[0]


async def _world(address: str) -> World:
    return World(await Connection.connect([address]))
