"""The addresses at which a client reaches nodes: those that it was given, and those that nodes name."""

from __future__ import annotations

import gc

from stelae.client.connection import Connection
from stelae.client.link_upkeep import UNNAMED_S
from stelae.spi.ids import TabletId
from tests.unit.wire.worlds import messenger, run, until


def test_a_node_that_answers_is_kept_at_its_address_whatever_address_others_name() -> None:
    """The config of a node behind a forwarded port, or whose address has changed, names an address that the client
    cannot reach. The client gave up the link over which it had just learned that."""

    async def main() -> None:
        node, _ = messenger(1)
        node.serve("echo", lambda request: request.reply(request.body))
        async with await Connection.connect([node.bind("127.0.0.1:0")]) as client:
            name = node.identity.node_id
            client.add_peers([(name, "127.0.0.1:1")])
            assert (await client.ask(name, "echo", b"x")).body == [b"x"]

    run(main)


def test_a_node_that_does_not_answer_is_looked_for_at_the_address_that_others_name() -> None:
    async def main() -> None:
        node, _ = messenger(1)
        moved, _ = messenger(1, run=2)
        async with await Connection.connect([node.bind("127.0.0.1:0")]) as client:
            name = node.identity.node_id
            node.close()
            await until(lambda: client._messenger.connected(name) is None)
            client.add_peers([(name, moved.bind("127.0.0.1:0"))])
            await until(lambda: client._messenger.connected(name) is not None)

    run(main)


def test_a_question_may_wait_longer_than_a_message_may() -> None:
    """A command with a timeout of more than ten minutes ended at once, with an error about ``deadline_ms``."""

    async def main() -> None:
        node, _ = messenger(1)
        node.serve("echo", lambda request: request.reply(request.body))
        async with await Connection.connect([node.bind("127.0.0.1:0")]) as client:
            answer = await client.ask(node.identity.node_id, "echo", b"x", deadline_ms=3_600_000)
            assert answer.body == [b"x"]

    run(main)


def test_links_to_a_node_that_is_gone_are_closed_once_nothing_names_it() -> None:
    """A client that lived long in a cluster whose nodes came and went tried to connect to each of them for ever."""

    async def main() -> None:
        node, _ = messenger(1)
        replaced, _ = messenger(2)
        async with await Connection.connect([node.bind("127.0.0.1:0")]) as client:
            gone, address = replaced.identity.node_id, replaced.bind("127.0.0.1:0")
            tracker = client.member_lookup.tracker(TabletId("t"), [(gone, address)])
            await until(lambda: client._messenger.connected(gone) is not None)
            tracker.learn([node.identity.node_id])
            client._upkeep.look(0.0)
            client._upkeep.look(UNNAMED_S)
            assert gone in client._messenger.peers, "its link is up"
            replaced.close()
            await until(lambda: client._messenger.connected(gone) is None)
            tracker.learn([gone])
            client._upkeep.look(2 * UNNAMED_S)
            client._upkeep.look(3 * UNNAMED_S)
            assert gone in client._messenger.peers, "the tablet names it"
            del tracker
            gc.collect()
            client._upkeep.look(4 * UNNAMED_S)
            assert gone in client._messenger.peers, "not for long enough"
            client._upkeep.look(5 * UNNAMED_S)
            assert client._messenger.peers == {node.identity.node_id} and gone not in client.addresses

    run(main)


def test_links_to_the_nodes_that_the_user_has_named_are_kept() -> None:
    async def main() -> None:
        node, _ = messenger(1)
        async with await Connection.connect([node.bind("127.0.0.1:0")]) as client:
            name = node.identity.node_id
            node.close()
            await until(lambda: client._messenger.connected(name) is None)
            for number in range(3):
                client._upkeep.look(number * UNNAMED_S)
            assert client._messenger.peers == {name}

    run(main)
