"""The links of a node: to the members of its tablets, and for a time to other nodes that send to it."""

from __future__ import annotations

from unittest.mock import MagicMock

import msgspec
import pytest

from stelae.host.heartbeats import Beat
from stelae.host.member_links import IDLE_BEATS, MemberLinks
from stelae.host.peer_codec import PeerCodec, PeerMessageHeader
from stelae.host.peer_traffic import PeerTraffic
from stelae.spi.errors import PeerError
from stelae.spi.ids import ZERO, IncarnationId, NodeId, OpId, TabletId
from stelae.spi.members import Member, TabletConfig
from stelae_consensus_raft import RaftEngine
from tests.unit.consensus_raft.solo import ME, A, B, C
from tests.wild import Draw

RED, BLUE = TabletId("red"), TabletId("blue")
INTERVAL_US = 200_000


class Links:
    """The links of a messenger. ``open`` has the address of each peer."""

    def __init__(self) -> None:
        self.open: dict[NodeId, str] = {}
        self.kept: set[NodeId] = set()
        self.said: dict[NodeId, str] = {A: "a:1", B: "b:1", C: "c:1"}

    def add_peer(self, node_id: NodeId, address: str) -> None:
        self.open[node_id] = address
        self.kept.add(node_id)

    def remove_peer(self, node_id: NodeId) -> None:
        del self.open[node_id]
        self.kept.discard(node_id)

    def learn_peer(self, node_id: NodeId, address: str = "") -> bool:
        new, address = node_id not in self.open, address or self.said.get(node_id, "")
        if address:
            self.open[node_id] = address
        return new and bool(address)

    def forget_peer(self, node_id: NodeId) -> None:
        if node_id not in self.kept:
            del self.open[node_id]


def config(*nodes: NodeId, port: int = 1) -> TabletConfig:
    return TabletConfig(op_id=OpId(1, 1), members=tuple(Member(node_id=n, address=f"{n[0]}:{port}") for n in nodes))


@pytest.fixture
def links() -> Links:
    return Links()


@pytest.fixture
def members(links: Links) -> MemberLinks:
    return MemberLinks(ME, links)


def test_a_member_that_is_removed_from_the_last_tablet_loses_its_links(members: MemberLinks, links: Links) -> None:
    members.config_changed(RED, config(ME, A, B))
    members.config_changed(BLUE, config(ME, B, C))
    assert set(links.open) == {A, B, C}, "not to itself"
    members.config_changed(RED, config(ME, C))
    assert set(links.open) == {B, C}, "blue needs B"
    members.config_changed(BLUE, config(ME, C))
    assert set(links.open) == {C}


def test_a_tablet_that_is_deleted_needs_no_links(members: MemberLinks, links: Links) -> None:
    members.config_changed(RED, config(ME, A, B))
    members.config_changed(BLUE, config(ME, B))
    members.forget(RED)
    members.forget(RED)
    assert set(links.open) == {B}


def test_the_next_config_can_change_the_address_of_a_member(members: MemberLinks, links: Links) -> None:
    members.config_changed(RED, config(ME, A))
    members.config_changed(RED, config(ME, A, port=2))
    assert links.open == {A: f"{A[0]}:2"}


def test_a_node_outside_all_configs_is_linked_until_it_has_been_silent(members: MemberLinks, links: Links) -> None:
    """Links of a removed member stayed for ever, and were tried again and again after it had stopped."""
    members.heard(C, 100)
    assert C in links.open
    members.heard(C, 200)
    members.close_idle(200)
    assert C in links.open, "it was heard since"
    members.close_idle(201)
    assert C not in links.open
    members.heard(C, 300)
    assert C in links.open, "it may need an answer again"


def test_a_node_that_becomes_a_member_keeps_its_links_until_it_is_removed(members: MemberLinks, links: Links) -> None:
    members.heard(C, 100)
    members.config_changed(RED, config(ME, C))
    members.close_idle(1000)
    assert C in links.open
    members.config_changed(RED, config(ME))
    assert C not in links.open


def test_a_member_that_is_silent_keeps_its_links(members: MemberLinks, links: Links) -> None:
    members.config_changed(RED, config(ME, A))
    members.heard(A, 100)
    members.close_idle(10**9)
    assert A in links.open


def test_a_node_whose_address_is_not_known_gets_no_links(members: MemberLinks, links: Links) -> None:
    del links.said[C]
    members.heard(C, 100)
    members.close_idle(1000)
    assert not links.open


def test_the_source_of_a_copy_is_linked_as_long_as_a_session_may_be_open(members: MemberLinks, links: Links) -> None:
    """If it never became a member, its links stayed for ever, and were tried again and again after it had stopped."""
    members.reach(C, "c:2", 1000)
    assert links.open == {C: "c:2"}
    members.heard(C, 100)
    members.close_idle(500)
    assert C in links.open, "a copy needs it for longer than it was heard"
    members.reach(C, "", 2000)
    members.close_idle(2000)
    assert C in links.open
    members.close_idle(2001)
    assert C not in links.open


def test_links_that_a_config_or_another_part_keeps_are_not_closed_after_a_copy(
    members: MemberLinks, links: Links
) -> None:
    members.config_changed(RED, config(ME, A))
    links.add_peer(B, "b:1")
    for node in (A, B):
        members.reach(node, f"{node[0]}:2", 1000)
    members.close_idle(5000)
    assert links.open == {A: f"{A[0]}:2", B: f"{B[0]}:2"}, "a link that is down may lead to an old address"


class Node:
    """The traffic of a node without replicas, whose time passes beat by beat."""

    def __init__(self, links: Links) -> None:
        self.now_us, self.due = 10**9, MagicMock()
        turns = MagicMock(now_us=lambda: self.now_us)
        turns.call_at.side_effect = lambda _at, call: setattr(self, "due", call)
        self.codec = PeerCodec(RaftEngine.message_types)
        self.traffic = PeerTraffic(self.codec, turns, MagicMock(), INTERVAL_US, MemberLinks(ME, links))
        self.traffic.start(MagicMock())

    def pass_beats(self, count: int) -> None:
        for _ in range(count):
            self.now_us += INTERVAL_US
            self.due()


def test_a_leader_that_no_config_lists_is_linked_as_long_as_it_sends_heartbeats(links: Links) -> None:
    """So a replica with an old config can answer members that were added while it was away."""
    node = Node(links)
    for _ in range(3):
        beat = msgspec.msgpack.encode(Beat(1, ((RED, 3),)))
        node.traffic.beat_arrived(C, IncarnationId("1" * 16), [beat])
        node.pass_beats(IDLE_BEATS)
        assert C in links.open
    node.pass_beats(1)
    assert C not in links.open


def test_a_sender_that_is_refused_is_linked_for_the_answer_and_not_for_ever(links: Links) -> None:
    node = Node(links)
    message = Draw(MagicMock(random=lambda: 0.5, getrandbits=lambda bits: 1)).message(
        next(iter(RaftEngine.message_types.values()))
    )
    with pytest.raises(PeerError):
        node.traffic.consensus_arrived(
            C, IncarnationId("1" * 16), node.codec.encode(PeerMessageHeader(RED, 2, ZERO, ZERO), message, ())
        )
    assert C in links.open
    node.pass_beats(IDLE_BEATS + 1)
    assert C not in links.open
