"""Conformance checks for consensus engines: members join, are promoted, and leave (C9-C12, durability rule 11)."""

from __future__ import annotations

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import UNKNOWN, BeatException, Removed
from stelae.spi.ids import ZERO
from stelae.spi.log import EntryKind
from stelae.spi.members import AddServer, ChangeRole, MemberType, RemoveServer
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import node_name


def member_types(cluster: ConsensusCluster, number: int) -> dict[int, str]:
    """Return the type of each member in the config in force of a node."""
    config = cluster.nodes[number].status.config
    return {int(m.node_id, 16): m.member_type.value for m in config.members}


def remove(number: int) -> RemoveServer:
    """Return the change that removes a node."""
    return RemoveServer(node_id=node_name(number))


def promote(number: int) -> ChangeRole:
    """Return the change that makes a node a voter."""
    return ChangeRole(node_id=node_name(number), member_type=MemberType.VOTER)


class MemberChecks:
    """Checks of changes that are carried out; part of ``ConsensusConformance``."""

    def test_a_new_member_gets_the_log_and_is_promoted_by_the_leader(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.propose(1, b"a", b"b")
        cluster.deliver_all()
        cluster.join(4)
        token = cluster.add(1, 4)
        cluster.deliver_all()
        assert cluster.changed[token].member(node_name(4)) is not None
        assert cluster.bodies(4) == [b"a", b"b"]
        assert member_types(cluster, 4) == dict.fromkeys((1, 2, 3, 4), "VOTER")
        assert cluster.nodes[4].status.role is Role.FOLLOWER
        assert cluster.nodes[4].disk.config == cluster.nodes[1].disk.config

    def test_a_config_takes_effect_when_it_is_appended(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER)
        cluster.isolate(2)
        cluster.change(1, promote(4))
        assert member_types(cluster, 1).get(4) == "VOTER"
        cluster.isolate(4)
        cluster.deliver_all()
        status = cluster.nodes[1].status
        assert status.committed_config.op_id != status.config.op_id, "two of four voters commit nothing"
        cluster.heal()
        cluster.advance(cluster.timeout_us)
        assert cluster.nodes[1].status.committed_config == cluster.nodes[1].status.config

    def test_a_config_is_rolled_back_when_its_entry_is_replaced(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        before = cluster.nodes[1].status.config
        cluster.isolate(1)
        token = cluster.add(1, 4)
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.rejected.get(token) == "LEADERSHIP_LOST"
        cluster.heal()
        cluster.advance(2 * cluster.timeout_us)
        assert cluster.nodes[1].status.config == before

    def test_a_promotion_waits_until_the_rest_takes_less_than_an_election_timeout(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.propose(1, *(b"x" * 100 for _ in range(50)))
        cluster.deliver_all()
        cluster.join(4)
        cluster.add(1, 4)
        cluster.deliver_all(lambda packet: packet.sender != 4)
        cluster.nodes[4].holds = True
        cluster.deliver_all()
        cluster.advance(2 * cluster.timeout_us)
        cluster.propose(1, b"more")
        cluster.deliver_all()
        assert member_types(cluster, 1).get(4) == "PRE_VOTER"
        while cluster.nodes[4].disk.last.index <= 50:
            cluster.persist(4)
        cluster.deliver_all()
        assert cluster.nodes[1].status.peers[-1].match_index > 50, "it has acknowledged most of the log"
        assert member_types(cluster, 1).get(4) == "PRE_VOTER", "which took two election timeouts"
        cluster.nodes[4].holds = False
        while cluster.nodes[4].pending:
            cluster.persist(4)
        cluster.advance(cluster.timeout_us)
        assert member_types(cluster, 1).get(4) == "VOTER"

    def test_several_members_join_at_once_and_are_promoted_one_at_a_time(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        for number in (4, 5):
            cluster.join(number)
            cluster.nodes[number].holds = True
            cluster.add(1, number)
            cluster.deliver_all()
        assert list(member_types(cluster, 1).values()).count("PRE_VOTER") == 2
        for number in (4, 5):
            cluster.nodes[number].holds = False
            while cluster.nodes[number].pending:
                cluster.persist(number)
        cluster.advance(cluster.timeout_us)
        assert set(member_types(cluster, 1).values()) == {"VOTER"}

    def test_a_promotion_goes_on_under_another_leader(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.join(4)
        cluster.nodes[4].holds = True
        cluster.add(1, 4)
        cluster.deliver_all()
        cluster.crash(1)
        cluster.nodes[4].holds = False
        cluster.crash(4)
        cluster.advance(4 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and member_types(cluster, leader.number).get(4) == "PRE_VOTER"
        cluster.start(4)
        cluster.advance(2 * cluster.timeout_us)
        assert member_types(cluster, leader.number).get(4) == "VOTER"

    def test_a_member_without_a_vote_does_not_make_a_majority(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.join(4)
        cluster.nodes[4].holds = True
        cluster.add(1, 4)
        cluster.deliver_all()
        cluster.isolate(2)
        cluster.nodes[3].holds = True
        cluster.propose(1, b"a")
        before = cluster.nodes[1].status.commit
        while len(cluster.nodes[4].pending) > 0:
            cluster.persist(4)
        cluster.deliver_all(lambda packet: packet.sender != 3)
        assert cluster.nodes[1].status.commit == before

    # -- leaving ---------------------------------------------------------------------------------

    def test_a_removed_member_counts_no_more_and_gets_nothing(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(2)
        cluster.change(1, remove(3))
        cluster.propose(1, b"a")
        cluster.deliver_all()
        assert [int(p.node_id, 16) for p in cluster.nodes[1].status.peers] == [2]
        assert [int(p, 16) for p in cluster.nodes[1].beats.peers] == [2]
        assert cluster.nodes[1].status.commit == 1, "node 1 is one of two voters"
        assert cluster.nodes[3].status.last.index == 1

    def test_the_last_member_but_one_can_be_removed_though_it_is_down(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(2)
        cluster.crash(2)
        (accepted,) = cluster.propose(1, b"a")
        token = cluster.change(1, remove(2))
        assert member_types(cluster, 1) == {1: "VOTER"}
        assert token in cluster.changed and cluster.nodes[1].status.commit == 3
        assert accepted in cluster.accepted and cluster.bodies(1) == [b"a"]

    def test_what_a_smaller_majority_has_is_committed_when_the_majority_shrinks(
        self, harness: ConsensusHarness
    ) -> None:
        """No acknowledgement is to come: the entry is durable on all that count now, and the removal nowhere yet."""
        cluster = harness.led(2)
        cluster.crash(2)
        cluster.propose(1, b"a")
        assert cluster.nodes[1].status.commit == 1, "one of two voters has the entry"
        cluster.nodes[1].holds = True
        token = cluster.change(1, remove(2))
        assert cluster.nodes[1].status.commit == 2 and token not in cluster.changed
        cluster.nodes[1].holds = False
        while cluster.nodes[1].pending:
            cluster.persist(1)
        assert cluster.nodes[1].status.commit == 3 and token in cluster.changed

    def test_a_pinned_member_is_pinned_until_a_voter_makes_room_for_it(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()

        def pinned() -> set[int]:
            members = cluster.nodes[1].status.config.members
            return {number for number in range(1, 7) for m in members if m.node_id == node_name(number) and m.pinned}

        for number, kind in ((4, MemberType.PRE_VOTER), (5, MemberType.NON_VOTER), (6, MemberType.NON_VOTER)):
            cluster.join(number)
            cluster.change(
                1, AddServer(node_id=node_name(number), address=f"n-{number}:1", member_type=kind, pinned=number != 6)
            )
            cluster.deliver_all()
            cluster.advance(4 * cluster.timeout_us)
        assert member_types(cluster, 1)[4] == "VOTER" and pinned() == {4, 5}
        for gone, left in ((6, {4, 5}), (3, {5}), (5, set[int]())):
            cluster.change(1, RemoveServer(node_id=node_name(gone)))
            cluster.deliver_all()
            assert gone not in member_types(cluster, 1) and pinned() == left

    def test_a_member_that_replaces_another_one_is_marked_until_that_one_goes_and_gets_its_marks(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()

        def marks() -> dict[int, tuple[int, bool]]:
            """Return the number of the member that each marked member replaces, and whether it is pinned."""
            found = {}
            for m in cluster.nodes[1].status.config.members:
                place = int(m.replaces, 16) if isinstance(m.replaces, str) else 0
                if place or m.pinned is True:
                    found[int(m.node_id, 16)] = (place, m.pinned is True)
            return found

        def add(number: int, replaced: int | None) -> None:
            node, place = node_name(number), None if replaced is None else node_name(replaced)
            change = AddServer(node_id=node, address=f"n-{number}:1", pinned=place is None, replaces=place)
            cluster.change(1, change)
            cluster.deliver_all()
            cluster.advance(4 * cluster.timeout_us)

        for number, replaced in ((4, None), (5, 3), (6, 5)):
            cluster.join(number)
            add(number, replaced)
        assert member_types(cluster, 1) == dict.fromkeys(range(1, 7), "VOTER")
        assert marks() == {4: (0, True), 5: (3, False), 6: (5, False)}
        for gone, left in ((5, {4: (0, True), 6: (3, False)}), (3, {4: (0, True)})):
            cluster.change(1, RemoveServer(node_id=node_name(gone)))
            cluster.deliver_all()
            assert gone not in member_types(cluster, 1) and marks() == left
        add(6, 4)
        assert marks() == {4: (0, True), 6: (4, False)}, "a member can be given a place, too"
        cluster.change(1, RemoveServer(node_id=node_name(4)))
        cluster.deliver_all()
        assert marks() == {6: (0, True)}, "it replaces a pinned member"

    def test_a_member_that_is_down_can_be_removed(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.crash(3)
        cluster.advance(4 * cluster.timeout_us)
        token = cluster.change(1, remove(3))
        cluster.deliver_all()
        assert token in cluster.changed and member_types(cluster, 2) == {1: "VOTER", 2: "VOTER"}

    def test_a_member_whose_promotion_is_appended_is_removed_once_that_is_committed(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER)
        for number in (2, 4):
            cluster.isolate(number)
        promotion = cluster.change(1, promote(4))
        early = cluster.change(1, remove(4))
        assert cluster.rejected == {early: "CHANGE_PENDING"} and member_types(cluster, 1)[4] == "VOTER"
        cluster.heal()
        cluster.advance(cluster.timeout_us)
        assert promotion in cluster.changed
        token = cluster.change(1, remove(4))
        cluster.deliver_all()
        assert token in cluster.changed
        assert member_types(cluster, 1) == member_types(cluster, 2) == dict.fromkeys((1, 2, 3), "VOTER")

    def test_a_leader_that_is_to_be_removed_hands_over_and_names_its_successor(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.propose(1, b"a")
        cluster.deliver_all()
        token = cluster.change(1, remove(1))
        cluster.deliver_all()
        rejection = cluster.rejections.get(token)
        assert rejection is not None, "the leader removes itself"
        assert rejection.reason.value == "STEPPING_DOWN" and rejection.leader is not None
        successor = int(rejection.leader, 16)
        assert cluster.role(successor) is Role.LEADER and cluster.role(1) is Role.FOLLOWER
        again = cluster.change(successor, remove(1))
        cluster.deliver_all()
        assert again in cluster.changed and 1 not in member_types(cluster, successor)
        assert cluster.bodies(successor) == [b"a"]

    def test_a_removed_member_raises_no_term_and_does_not_campaign_once_it_is_told(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.isolate(3)
        cluster.change(1, remove(3))
        cluster.advance(4 * cluster.timeout_us)
        term = cluster.nodes[1].status.term
        cluster.heal()
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.nodes[3].status.term == term, "a pre-vote raises no term"
        cluster.step(3, Removed(cluster.nodes[1].status.committed_config.op_id))
        assert cluster.nodes[3].status.role is Role.NON_PARTICIPANT
        assert cluster.nodes[3].running.next_deadline() is None
        assert (cluster.nodes[1].status.role, cluster.nodes[1].status.term) == (Role.LEADER, term)

    def test_a_late_word_of_a_removal_does_not_concern_a_member_that_was_added_again(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.change(1, remove(3))
        cluster.deliver_all()
        removal = cluster.nodes[1].status.committed_config.op_id
        cluster.add(1, 3)
        cluster.deliver_all()
        cluster.step(3, Removed(removal))
        assert cluster.nodes[3].status.role is Role.FOLLOWER
        assert cluster.nodes[3].running.next_deadline() is not None

    def test_a_voter_that_a_pending_config_removes_can_still_be_elected(self, harness: ConsensusHarness) -> None:
        """Only node 2 has the config that removes it, and node 1 needs its vote (Raft thesis, 4.2.2)."""
        cluster = harness.led(2)
        cluster.nodes[1].holds = True
        cluster.change(1, remove(2))
        cluster.add(1, 9)
        entry = cluster.nodes[1].log[-1]
        assert entry.kind is EntryKind.CONFIG
        cluster.crash(1)
        cluster.nodes[2].disk.put(entry)
        cluster.restart(2)
        cluster.nodes[1].holds = False
        cluster.start(1)
        cluster.advance(10 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and leader.number == 1
        assert member_types(cluster, 1) == {1: "VOTER"} and cluster.nodes[1].status.serving
        assert cluster.nodes[2].status.role is Role.NON_PARTICIPANT

    def test_a_candidate_outside_its_config_does_not_count_itself(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.nodes[1].holds = True
        cluster.change(1, remove(3))
        entry = cluster.nodes[1].log[-1]
        cluster.crash(1)
        cluster.drop()
        cluster.nodes[3].disk.put(entry)
        cluster.restart(3)
        cluster.nodes[1].holds = False
        cluster.start(1)
        cluster.crash(2)
        cluster.advance(10 * cluster.timeout_us)
        assert cluster.leader() is None, "it has the vote of one of two voters"
        cluster.start(2)
        cluster.advance(10 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and leader.number in (1, 2)

    def test_a_leader_outside_its_config_does_not_count_itself(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.nodes[1].holds = True
        cluster.change(1, remove(3))
        entry = cluster.nodes[1].log[-1]
        cluster.crash(1)
        cluster.drop()
        cluster.nodes[3].disk.put(entry)
        cluster.restart(3)
        cluster.nodes[1].holds = False
        cluster.start(1)
        cluster.win(3)
        cluster.isolate(2)
        before = cluster.nodes[3].status.commit
        cluster.advance(cluster.timeout_us)
        assert cluster.nodes[3].status.commit == before, "one of two voters has its entries"
        cluster.heal()
        cluster.advance(10 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and leader.number in (1, 2)
        assert member_types(cluster, leader.number) == {1: "VOTER", 2: "VOTER"}

    def test_an_acknowledgement_from_before_the_removal_does_not_count_after_joining_again(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(3, MemberType.NON_VOTER)
        cluster.propose(1, b"a")
        cluster.deliver_all(lambda packet: packet.sender != 4)
        late = [packet for packet in cluster.network if packet.sender == 4]
        cluster.drop()
        cluster.change(1, remove(4))
        cluster.deliver_all()
        cluster.join(4)
        cluster.isolate(4)
        cluster.add(1, 4, MemberType.NON_VOTER)
        cluster.deliver_all()
        assert late
        for packet in late:
            cluster.deliver(packet)
        (peer,) = [p for p in cluster.nodes[1].status.peers if p.node_id == node_name(4)]
        assert peer.match_index == 0, "node 4 has lost its log since"
        cluster.heal()
        cluster.advance(2 * cluster.timeout_us)
        assert cluster.bodies(4) == [b"a"]

    # -- members that never answer ---------------------------------------------------------------

    def test_a_new_member_that_never_answers_is_removed(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.add(1, 4)
        cluster.advance(harness.member_join_timeout_us - cluster.timeout_us)
        assert member_types(cluster, 1).get(4) == "PRE_VOTER"
        cluster.advance(2 * cluster.timeout_us)
        assert 4 not in member_types(cluster, 1) and cluster.nodes[2].disk.config == cluster.nodes[1].disk.config

    def test_a_new_member_that_never_answers_is_removed_by_the_next_leader(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.add(1, 4)
        cluster.deliver_all()
        cluster.crash(1)
        cluster.advance(harness.member_join_timeout_us + 4 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and 4 not in member_types(cluster, leader.number)

    def test_a_new_member_that_dies_before_it_has_caught_up_is_removed(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.join(4)
        cluster.nodes[4].holds = True
        cluster.add(1, 4)
        cluster.advance(2 * harness.member_join_timeout_us)
        assert member_types(cluster, 1).get(4) == "PRE_VOTER", "it answers heartbeats, although its disk is slow"
        cluster.crash(4)
        cluster.advance(harness.member_join_timeout_us - cluster.timeout_us)
        assert member_types(cluster, 1).get(4) == "PRE_VOTER"
        cluster.advance(2 * cluster.timeout_us)
        assert 4 not in member_types(cluster, 1) and cluster.nodes[2].disk.config == cluster.nodes[1].disk.config

    def test_a_new_member_stays_while_it_is_copied_for_long(self, harness: ConsensusHarness) -> None:
        """Until it has a replica, it refuses each heartbeat."""
        cluster = harness.led()
        cluster.add(1, 4)
        for _ in range(4):
            cluster.advance(harness.member_join_timeout_us // 2)
            cluster.step(1, BeatException(node_name(4), 0, UNKNOWN))
            cluster.deliver_all()
        assert member_types(cluster, 1).get(4) == "PRE_VOTER"
        cluster.join(4)
        cluster.advance(9 * cluster.timeout_us)
        assert member_types(cluster, 1).get(4) == "VOTER"

    def test_a_silent_member_that_is_to_get_a_vote_has_the_whole_time_to_answer(
        self, harness: ConsensusHarness
    ) -> None:
        """It was removed at once, for its silence as a member that may be down."""
        cluster = harness.led()
        cluster.crash(3)
        for member_type in (MemberType.NON_VOTER, MemberType.PRE_VOTER):
            cluster.change(1, ChangeRole(node_id=node_name(3), member_type=member_type))
            cluster.advance(harness.member_join_timeout_us - cluster.timeout_us)
            assert member_types(cluster, 1).get(3) == member_type.name
        cluster.restart(3)
        cluster.advance(9 * cluster.timeout_us)
        assert member_types(cluster, 1).get(3) == "VOTER"

    def test_a_member_that_has_joined_stays_though_it_is_silent(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.join(4)
        cluster.add(1, 4, MemberType.NON_VOTER)
        cluster.deliver_all()
        cluster.crash(4)
        cluster.advance(harness.member_join_timeout_us + 4 * cluster.timeout_us)
        assert member_types(cluster, 1).get(4) == "NON_VOTER"
        cluster.transfer(1, 2)
        cluster.advance(harness.member_join_timeout_us + 4 * cluster.timeout_us)
        assert cluster.role(2) is Role.LEADER and member_types(cluster, 2).get(4) == "NON_VOTER"

    # -- replicas with an old config -------------------------------------------------------------

    def test_a_lagging_voter_votes_for_and_follows_members_that_it_does_not_know(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led()
        cluster.isolate(3)
        cluster.join(4)
        cluster.cut_links |= {(3, 4), (4, 3)}
        cluster.add(1, 4)
        cluster.deliver_all()
        assert member_types(cluster, 1).get(4) == "VOTER" and 4 not in member_types(cluster, 3)
        cluster.crash(1)
        cluster.heal()
        cluster.elect(4)
        cluster.advance(cluster.timeout_us)
        assert cluster.nodes[3].status.leader == node_name(4)
        assert member_types(cluster, 3) == member_types(cluster, 4)

    def test_a_member_without_a_config_waits_for_one(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.join(4)
        cluster.advance(4 * cluster.timeout_us)
        status = cluster.nodes[4].status
        assert (status.role, status.term, status.last) == (Role.NON_PARTICIPANT, 0, ZERO)
