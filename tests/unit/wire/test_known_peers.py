"""Peers that are found again by an address: ``Messenger.connect`` of a node to which there are links already."""

from __future__ import annotations

import asyncio

import pytest

from stelae.spi.errors import Unavailable
from stelae.spi.ids import NodeId
from stelae.wire.call_retries import RetryPolicy
from stelae.wire.messenger import Messenger
from stelae.wire.settings import Lane
from tests.unit.wire.worlds import joined, messenger, run, until

NODE = NodeId(f"{2:032x}")


def echo(node: Messenger) -> str:
    node.serve("echo", lambda request: request.reply(request.body))
    return node.bind("127.0.0.1:0")


def test_a_known_peer_found_again_by_address_stays_one_peer() -> None:
    async def main() -> None:
        client, _ = messenger(1)
        node, _ = messenger(2)
        address = echo(node)
        await joined(client, node, address)
        assert await client.connect(address) == NODE
        alias = address.replace("127.0.0.1", "localhost")
        assert await client.connect(alias) == NODE
        await until(lambda: client.connected(NODE) is not None)
        answer = await client.call(NODE, "echo", [b"x"], deadline_ms=10_000, retry=RetryPolicy(attempt_ms=200))
        assert answer.body == [b"x"]

    run(main)


@pytest.mark.parametrize("known", ["elsewhere", "same"])
def test_a_known_peer_that_is_found_by_address_can_be_called_at_once(known: str) -> None:
    """The link of a known peer went on trying the address from before, and ``connect`` did not wait for it: a command
    that was given the new address of a node failed, because the node was not connected."""

    async def main() -> None:
        client, _ = messenger(1, reconnect_ms_min=200)
        node, _ = messenger(2)
        free, _ = messenger(3)
        dead = free.bind("127.0.0.1:0")
        free.close()
        address = echo(node)
        client.add_peer(NODE, dead if known == "elsewhere" else address)
        link = client._link(NODE, Lane.CONTROL)
        assert link is not None
        link.restart("for the test")
        assert await client.connect(address) == NODE
        assert (await client.call(NODE, "echo", [b"x"], deadline_ms=5000)).body == [b"x"]
        await until(lambda: client.connected(NODE, Lane.BULK) is not None)

    run(main)


def test_a_known_peer_that_does_not_come_back_ends_the_search_for_it() -> None:
    async def main() -> None:
        client, _ = messenger(1)
        node, _ = messenger(2)
        await joined(client, node, address := echo(node))
        alias = address.replace("127.0.0.1", "localhost")
        found = [asyncio.ensure_future(client.connect(alias, deadline_ms=deadline_ms)) for deadline_ms in (100, 60_000)]
        link = client._link(NODE, Lane.CONTROL)
        assert link is not None
        link.open = lambda: None  # type: ignore[method-assign]
        await until(lambda: not link.up)
        with pytest.raises(Unavailable, match="no answer from"):
            await found[0]
        client.close()
        with pytest.raises(Unavailable, match="closing"):
            await found[1]

    run(main)
