"""The addresses at which a client reaches nodes: those that it was given, and those that nodes name."""

from __future__ import annotations

from stelae.client.connection import Connection
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
