"""Heartbeats of many tablets in one message per pair of nodes (durability rule 15)."""

from __future__ import annotations

from stelae.host.heartbeats import Beat, BeatAck, BeatRefusal, HeartbeatService
from stelae.spi.consensus import Beats
from stelae.spi.consensus_events import BeatException, Event, LeaderAlive, PeerAlive, PeerUnreachable
from stelae.spi.ids import IncarnationId, NodeId, TabletId

LEADER, PEER, OTHER = NodeId("a" * 32), NodeId("b" * 32), NodeId("c" * 32)
FIRST_RUN, SECOND_RUN = IncarnationId("1" * 16), IncarnationId("2" * 16)
RED, BLUE, GREEN = TabletId("red"), TabletId("blue"), TabletId("green")


class Node:
    """One node's service, with the state of its replicas, and what reached their cores."""

    def __init__(self, **states: tuple[int, str]) -> None:
        self.states = {TabletId(name): state for name, state in states.items()}
        self.events: list[tuple[TabletId, Event]] = []
        self.service = HeartbeatService(self, lambda tablet, e: self.events.append((tablet, e)))

    def beat_state(self, tablet_id: TabletId, leader: NodeId) -> tuple[int, str]:
        return self.states.get(tablet_id, (0, "unknown"))

    def leads(self, tablet: TabletId, term: int, *peers: NodeId) -> None:
        self.service.set_beats(tablet, Beats(term, peers))

    def beat_to(self, peer: NodeId) -> Beat:
        return dict(self.service.beats_due())[peer]


def exchange(
    leader: Node, follower: Node, now_us: int, run: IncarnationId = FIRST_RUN, peer_run: IncarnationId = FIRST_RUN
) -> tuple[Beat, BeatAck]:
    """One beat and its answer, without delay."""
    beat = leader.beat_to(PEER)
    ack = follower.service.received(LEADER, run, beat, now_us)
    leader.service.acknowledged(PEER, peer_run, ack, now_us)
    return beat, ack


def test_one_message_per_peer_names_every_tablet_that_is_led() -> None:
    leader = Node()
    leader.leads(RED, 3, PEER, OTHER)
    leader.leads(BLUE, 7, PEER)
    named = {peer: beat.tablets for peer, beat in leader.service.beats_due()}
    assert named == {PEER: ((BLUE, 7), (RED, 3)), OTHER: ((RED, 3),)}


def test_an_acknowledged_set_is_not_repeated_until_it_changes() -> None:
    leader, follower = Node(), Node(red=(3, ""), blue=(7, ""))
    leader.leads(RED, 3, PEER)
    assert exchange(leader, follower, 10)[0].tablets == ((RED, 3),)
    assert exchange(leader, follower, 20)[0].tablets is None
    leader.leads(BLUE, 7, PEER)
    assert exchange(leader, follower, 30)[0].tablets == ((BLUE, 7), (RED, 3))


def test_saying_the_same_again_changes_nothing() -> None:
    leader = Node()
    leader.leads(RED, 3, PEER)
    before = leader.beat_to(PEER)
    leader.leads(RED, 3, PEER)
    assert leader.beat_to(PEER) == before


def test_a_tablet_that_is_led_no_more_is_named_no_more() -> None:
    leader = Node()
    leader.leads(RED, 3, PEER, OTHER)
    leader.leads(RED, 3, OTHER)
    assert [peer for peer, _ in leader.service.beats_due()] == [OTHER]
    leader.leads(RED, 4)
    assert leader.service.beats_due() == []


def test_a_follower_that_has_lost_the_set_asks_for_all_of_it() -> None:
    leader = Node()
    leader.leads(RED, 3, PEER)
    exchange(leader, Node(red=(3, "")), 10)
    restarted = Node(red=(3, ""))
    assert exchange(leader, restarted, 20)[1] == BeatAck(0, ())
    assert exchange(leader, restarted, 30)[0].tablets == ((RED, 3),)


def test_a_version_of_an_earlier_run_of_the_leaders_node_is_not_mistaken_for_the_new_one() -> None:
    leader, follower = Node(), Node(red=(3, ""))
    leader.leads(RED, 3, PEER)
    exchange(leader, follower, 10)
    beat = leader.beat_to(PEER)
    assert beat.tablets is None
    assert follower.service.received(LEADER, SECOND_RUN, beat, 20) == BeatAck(0, ())


def test_the_answer_names_each_exception_and_the_leaders_core_hears_of_it() -> None:
    leader, follower = Node(), Node(red=(9, ""), blue=(7, "failed"))
    for tablet in (RED, BLUE, GREEN):
        leader.leads(tablet, 7, PEER)
    ack = exchange(leader, follower, 10)[1]
    told = {BLUE: (7, "failed"), GREEN: (0, "unknown"), RED: (9, "term")}
    assert {r.tablet_id: (r.term, r.reason) for r in ack.refusals} == told
    heard = dict(leader.events)
    assert heard == {t: BeatException(PEER, term, reason) for t, (term, reason) in told.items()}


def test_the_leaders_core_hears_at_once_that_a_peer_makes_no_exception_any_more() -> None:
    """A leader had to wait for its next deadline to learn that a copy was complete."""
    leader, follower = Node(), Node(red=(3, ""))
    leader.leads(RED, 3, PEER)
    leader.leads(BLUE, 7, PEER)
    exchange(leader, follower, 10)
    assert leader.events == [(BLUE, BeatException(PEER, 0, "unknown"))]
    follower.states[BLUE] = (7, "")
    exchange(leader, follower, 20)
    exchange(leader, follower, 30)
    assert leader.events[1:] == [(BLUE, PeerAlive(PEER, 7, 20))], "once"


def test_an_exception_of_an_earlier_leadership_ends_without_a_word() -> None:
    leader, follower = Node(), Node()
    leader.leads(RED, 3, PEER)
    exchange(leader, follower, 10)
    beat = leader.beat_to(PEER)
    leader.leads(RED, 4, PEER)
    follower.states[RED] = (4, "")
    leader.service.acknowledged(PEER, FIRST_RUN, BeatAck(beat.version, ()), 20)
    assert leader.events == [(RED, BeatException(PEER, 0, "unknown"))]


def test_a_peer_that_runs_anew_has_lost_what_was_under_way_to_it_even_if_no_link_was_seen_to_break() -> None:
    leader, follower = Node(), Node(red=(3, ""), blue=(7, ""))
    leader.leads(RED, 3, PEER)
    leader.leads(BLUE, 7, PEER)
    exchange(leader, follower, 10)
    assert leader.events == [], "the first answer says nothing about an earlier run"
    exchange(leader, Node(red=(3, ""), blue=(7, "")), 20, peer_run=SECOND_RUN)
    assert leader.events == [(RED, PeerUnreachable(PEER)), (BLUE, PeerUnreachable(PEER))]
    exchange(leader, follower, 30, peer_run=SECOND_RUN)
    assert len(leader.events) == 2


def test_a_peer_that_ran_anew_before_its_first_answer_has_lost_what_was_under_way_to_it() -> None:
    """It acknowledged an entry as its first run, and answers the first heartbeat as its second one."""
    leader, follower = Node(), Node(red=(3, ""))
    leader.leads(RED, 3, PEER)
    leader.service.heard(PEER, FIRST_RUN)
    exchange(leader, follower, 10, peer_run=SECOND_RUN)
    assert leader.events == [(RED, PeerUnreachable(PEER))]
    leader.service.heard(PEER, FIRST_RUN)  # It was overtaken by the answer.
    exchange(leader, follower, 20, peer_run=SECOND_RUN)
    assert leader.events == [(RED, PeerUnreachable(PEER))]


def test_an_answer_to_an_older_version_says_nothing_about_what_has_changed_since() -> None:
    leader, follower = Node(), Node(red=(3, ""))
    leader.leads(RED, 3, PEER)
    late = follower.service.received(LEADER, FIRST_RUN, leader.beat_to(PEER), 10)
    leader.leads(RED, 4, PEER)
    leader.service.acknowledged(PEER, FIRST_RUN, late, 20)
    assert leader.service.peers_alive(RED, 4) == []
    assert leader.beat_to(PEER).tablets == ((RED, 4),)


def test_leaders_stay_known_as_alive_while_elections_elsewhere_change_the_set_faster_than_answers_come() -> None:
    leader, follower = Node(), Node(red=(3, ""), blue=(7, "failed"))
    leader.leads(RED, 3, PEER)
    leader.leads(BLUE, 7, PEER)
    for round_number in range(1, 9):
        late = follower.service.received(LEADER, FIRST_RUN, leader.beat_to(PEER), round_number)
        leader.leads(GREEN, round_number, PEER)  # Elected again while the answer was under way.
        leader.service.acknowledged(PEER, FIRST_RUN, late, round_number)
        assert leader.service.peers_alive(RED, 3) == [PeerAlive(PEER, 3, round_number)]
        assert leader.service.peers_alive(BLUE, 7) == leader.service.peers_alive(GREEN, round_number) == []
    assert set(leader.events) == {(BLUE, BeatException(PEER, 7, "failed"))}, (
        "what was said of an older term of green is not passed on"
    )


def test_an_answer_that_was_overtaken_by_a_newer_one_changes_nothing() -> None:
    leader, follower = Node(), Node(red=(3, ""))
    leader.leads(RED, 3, PEER)
    first = follower.service.received(LEADER, FIRST_RUN, leader.beat_to(PEER), 10)
    leader.leads(BLUE, 7, PEER)
    exchange(leader, follower, 20)
    leader.service.acknowledged(PEER, FIRST_RUN, first, 30)
    assert leader.service.peers_alive(RED, 3) == [PeerAlive(PEER, 3, 20)]


def test_an_answer_about_a_tablet_that_is_led_no_more_reaches_nobody() -> None:
    leader = Node()
    leader.leads(RED, 3, PEER)
    version = leader.beat_to(PEER).version
    ack = BeatAck(version, (BeatRefusal(BLUE, 5, "term"),))
    leader.service.acknowledged(PEER, FIRST_RUN, ack, 10)
    assert leader.events == []


def test_an_answer_of_a_stranger_changes_nothing() -> None:
    leader = Node()
    leader.leads(RED, 3, PEER)
    leader.service.acknowledged(OTHER, FIRST_RUN, BeatAck(2, ()), 10)
    assert leader.service.peers_alive(RED, 3) == []


def test_a_peer_counts_as_alive_for_the_tablets_that_it_did_not_except() -> None:
    leader, follower = Node(), Node(red=(3, ""), blue=(9, ""))
    leader.leads(RED, 3, PEER, OTHER)
    leader.leads(BLUE, 7, PEER)
    exchange(leader, follower, 50)
    assert leader.service.peers_alive(RED, 3) == [PeerAlive(PEER, 3, 50)]
    assert leader.service.peers_alive(RED, 2) == []
    assert leader.service.peers_alive(BLUE, 7) == []


def test_a_follower_knows_when_its_leader_last_spoke_of_its_tablet() -> None:
    leader, follower = Node(), Node(red=(3, ""))
    leader.leads(RED, 3, PEER)
    exchange(leader, follower, 10)
    exchange(leader, follower, 60)
    assert follower.service.leader_alive(RED, LEADER, ()) == LeaderAlive(LEADER, 3, 60)
    assert follower.service.leader_alive(BLUE, LEADER, ()) is None
    assert follower.service.leader_alive(RED, OTHER, ()) is None


def test_without_a_known_leader_the_highest_term_that_names_the_tablet_counts() -> None:
    follower = Node()
    follower.service.received(LEADER, FIRST_RUN, Beat(2, ((RED, 3),)), 10)
    follower.service.received(OTHER, FIRST_RUN, Beat(2, ((RED, 4),)), 5)
    assert follower.service.leader_alive(RED, None, [LEADER, OTHER]) == LeaderAlive(OTHER, 4, 5)


def test_without_a_known_leader_a_stranger_that_names_a_higher_term_does_not_hide_the_leader() -> None:
    follower = Node()
    follower.service.received(LEADER, FIRST_RUN, Beat(2, ((RED, 3),)), 10)
    follower.service.received(OTHER, FIRST_RUN, Beat(2, ((RED, 1 << 60),)), 11)
    assert follower.service.leader_alive(RED, None, [LEADER, PEER]) == LeaderAlive(LEADER, 3, 10)


def test_nothing_is_kept_for_a_peer_without_tablets() -> None:
    leader = Node()
    leader.leads(RED, 3, PEER, OTHER)
    leader.leads(RED, 3, OTHER)
    assert list(leader.service._out) == [OTHER]


def test_a_peer_that_is_added_again_gets_the_tablets_although_an_answer_to_an_old_set_arrives_late() -> None:
    """If the versions began again, the peer would take the set of before for this one, and hear of no leader."""
    leader, follower = Node(), Node(red=(3, ""), blue=(7, ""))
    leader.leads(RED, 3, PEER)
    _, late = exchange(leader, follower, 10)
    leader.leads(RED, 3)
    leader.leads(BLUE, 7, PEER)
    leader.service.acknowledged(PEER, FIRST_RUN, late, 20)
    assert leader.service.peers_alive(BLUE, 7) == []
    assert exchange(leader, follower, 30)[0].tablets == ((BLUE, 7),)
    assert leader.service.peers_alive(BLUE, 7) == [PeerAlive(PEER, 7, 30)]
