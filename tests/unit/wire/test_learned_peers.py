"""Links to a node that has connected: open for the answer, and kept for those who ask for them."""

from __future__ import annotations

from stelae.spi.ids import NodeId
from tests.unit.wire.worlds import joined, messenger, run

NODE = NodeId(f"{2:032x}")


def test_links_to_a_node_that_has_connected_are_closed_unless_they_were_asked_for() -> None:
    async def main() -> None:
        node, _ = messenger(1)
        peer, _ = messenger(2)
        address = peer.bind("127.0.0.1:0")
        peer.advertise(address)
        assert not node.learn_peer(NODE), "a node that does not listen was said no address"
        own_address = node.bind("127.0.0.1:0")
        assert not node.learn_peer(NODE), "it has not connected"
        await joined(peer, node, own_address)
        assert node.learn_peer(NODE) and not node.learn_peer(NODE)
        assert node.peers == {NODE}
        node.forget_peer(NODE)
        assert not node.peers
        node.learn_peer(NODE)
        node.add_peer(NODE, address)
        node.forget_peer(NODE)
        assert node.peers == {NODE}
        node.remove_peer(NODE)
        assert not node.peers

    run(main)


def test_links_to_an_address_that_others_say_are_closed_unless_they_were_asked_for() -> None:
    async def main() -> None:
        node, _ = messenger(1)
        assert node.learn_peer(NODE, "127.0.0.1:9")
        assert not node.learn_peer(NODE, "127.0.0.1:10"), "only its address changes"
        node.forget_peer(NODE)
        assert not node.peers
        node.add_peer(NODE, "127.0.0.1:9")
        assert not node.learn_peer(NODE, "127.0.0.1:10")
        node.forget_peer(NODE)
        assert node.peers == {NODE}

    run(main)
