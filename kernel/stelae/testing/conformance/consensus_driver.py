"""Conformance checks for consensus engines: events of the driver, messages of any content, and effects that repeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from stelae.spi.consensus import REPLICATES, ConsensusEngine, Role
from stelae.spi.consensus_events import BeatException, Campaign, LeaderAlive, Persisted, Received, StepDown, Tick
from stelae.spi.ids import OpId
from stelae.spi.log import Entry, EntryKind
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import ClusterNode, InFlightMessage, node_name
from stelae.testing.other_process import call_elsewhere
from stelae.testing.outside_calls import outside_calls

NUMBERS = (-1, 0, 1, 1 << 33, (1 << 62) + 1, (1 << 63) - 1)
"""The values that replace each number of a message. The largest ones are more than any log has."""

ENTRIES = [
    (Entry(OpId(0, 0), EntryKind.WRITE, 0, b""),),
    (Entry(OpId(1, 9), EntryKind.WRITE, 1, b"after a gap"),),
    (Entry(OpId(-1, -1), EntryKind.NOOP, -1, b""),),
    (Entry(OpId(1, 2), EntryKind.CONFIG, 1, b"no config"),),
    (Entry(OpId(9, 2), EntryKind.WRITE, 1, b"a"), Entry(OpId(1, 3), EntryKind.WRITE, 1, b"of an older term")),
]
"""Entries that no correct peer sends."""


class DriverChecks:
    """Checks of what the driver tells a core; part of ``ConsensusConformance``."""

    def test_a_range_that_is_sent_in_part_is_followed_by_the_rest(self, harness: ConsensusHarness) -> None:
        """A range above the byte limit is cut. What was not sent must count neither as sent nor as acknowledged."""
        cluster = harness.led()
        cluster.crash(3)
        cluster.propose(1, *(b"%d" % number for number in range(12)))
        cluster.deliver_all()
        cluster.range_entries_max = 1
        cluster.start(3)
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.nodes[3].status.last == cluster.nodes[1].status.last
        cluster.propose(1, *(b"more %d" % number for number in range(5)))
        before_us = cluster.now_us
        cluster.deliver_all()
        assert cluster.now_us == before_us, "the rest does not wait for a retry"
        assert cluster.bodies(2) == cluster.bodies(3) == cluster.bodies(1)

    def test_a_leader_whose_committed_entries_fail_keeps_its_commit_index_and_sends_them_again(
        self, harness: ConsensusHarness
    ) -> None:
        """The two others have them, so they are committed. The log of the leader ends below its commit index."""
        cluster = harness.led()
        cluster.nodes[1].holds = True
        cluster.propose(1, b"a", b"b")
        cluster.deliver_all()
        assert cluster.nodes[1].status.commit == 3
        cluster.fail_persist(1)
        status = cluster.nodes[1].status
        assert (status.role, status.durable_index, status.commit) == (Role.FOLLOWER, 1, 3)
        cluster.nodes[1].holds = False
        while cluster.nodes[1].pending:
            cluster.persist(1)
        cluster.advance(8 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None
        cluster.propose(leader.number, b"c")
        cluster.advance(cluster.timeout_us)
        assert cluster.bodies(1) == cluster.bodies(2) == cluster.bodies(3) == [b"a", b"b", b"c"]

    def test_heartbeats_of_an_older_term_keep_no_follower_from_campaigning(self, harness: ConsensusHarness) -> None:
        """They come from a leader that was deposed and does not know it yet."""
        cluster = harness.led()
        cluster.crash(1)
        cluster.elect(2)
        cluster.crash(2)
        cluster.start(1)
        cluster.isolate(1)
        term = cluster.nodes[3].status.term
        for _ in range(4 * 10):
            cluster.now_us += cluster.timeout_us // 10
            cluster.step(3, LeaderAlive(node_name(1), 1, cluster.now_us))
        assert cluster.nodes[3].status.leader != node_name(1)
        cluster.heal()
        cluster.advance(4 * cluster.timeout_us)
        leader = cluster.leader()
        assert leader is not None and leader.status.term > term and leader.status.serving

    def test_a_leader_that_hears_of_a_later_term_steps_down(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.step(1, BeatException(node_name(2), 7, "term"))
        status = cluster.nodes[1].status
        assert status.role is Role.FOLLOWER and status.term == 7 and cluster.nodes[1].beats.peers == ()
        assert cluster.nodes[1].disk.hard_state.term == 7

    def test_stepping_down_is_ignored_by_a_replica_that_does_not_lead(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster(1)
        node = cluster.nodes[1]
        node.holds = True
        roles = []
        for _ in range(2):
            before = (node.status, node.running.next_deadline())
            node.running.step([StepDown()])
            assert node.running.take_ready() is None
            assert (node.status, node.running.next_deadline()) == before
            roles.append(node.status.role)
            cluster.step(1, Campaign())
        assert roles == [Role.FOLLOWER, Role.CANDIDATE]

    def test_a_read_that_no_lease_may_answer_asks_a_majority(self, harness: ConsensusHarness) -> None:
        """Its messages carry the clock of the leader's node to a majority before the read is answered."""
        cluster = harness.led()
        for _ in range(4):
            cluster.read(1)
            cluster.advance(cluster.timeout_us // 5)
        cluster.drop()
        (token,) = cluster.read_together(1, 1, by_lease=False)
        assert token not in cluster.reads and token not in cluster.rejected
        assert {packet.to for packet in cluster.network if packet.sender == 1} == {2, 3}
        cluster.deliver_all()
        assert token in cluster.reads

    def test_while_its_time_is_held_back_no_lease_of_a_leader_answers_a_read(self, harness: ConsensusHarness) -> None:
        """The time is later than the core knows, so that the lease may have ended. A majority is asked instead."""
        cluster = harness.led()
        for _ in range(4):
            cluster.read(1)
            cluster.advance(cluster.timeout_us // 5)
        cluster.clocks_stopped.add(1)
        cluster.drop()
        cluster.step(1, Tick(cluster.clock_us(1), held_back=True))
        (token,) = cluster.read_together(1, 1)
        assert token not in cluster.reads and token not in cluster.rejected
        cluster.deliver_all()
        assert token in cluster.reads

    def test_no_read_of_a_leader_that_was_replaced_misses_a_later_write(self, harness: ConsensusHarness) -> None:
        """It does not know of its successor yet. The cluster compares each answer with what was committed before."""
        cluster = harness.led()
        for _ in range(4):
            cluster.read(1)
            cluster.advance(cluster.timeout_us // 5)
        cluster.isolate(1)
        others = (cluster.nodes[2], cluster.nodes[3])
        for number in range(60):
            cluster.advance(cluster.timeout_us // 10)
            leader = next((node for node in others if node.status.serving and node.status.role is Role.LEADER), None)
            if leader is not None:
                cluster.propose(leader.number, b"%d" % number)
                cluster.deliver_all()
            cluster.read(1)
        assert max(cluster.committed) > 10, "the others elect no leader"

    def test_a_ready_is_durable_for_a_core_once_one_word_says_so(self, harness: ConsensusHarness) -> None:
        """``Persisted`` names the last Ready that is durable: earlier ones are not named again."""
        cluster = harness.led(1)
        node = cluster.nodes[1]
        node.holds = True
        for body in (b"a", b"b", b"c"):
            cluster.propose(1, body)
        last = node.pending[-1].id
        node.disk.entries = list(node.log)
        node.pending.clear()
        cluster.step(1, Persisted(last))
        assert cluster.bodies(1) == [b"a", b"b", b"c"] and node.status.durable_index == 4

    def test_the_interval_of_heartbeats_is_usable(self, harness: ConsensusHarness) -> None:
        interval_ms = harness.engine.beat_interval_ms(harness.config)
        assert isinstance(interval_ms, int) and interval_ms >= 1
        if REPLICATES in harness.engine.capabilities:
            assert interval_ms * 1000 < harness.election_timeout_us, "followers campaign between two heartbeats"

    # -- any message, and the same effects -----------------------------------------------------------

    def test_no_message_of_a_peer_raises_whatever_it_contains(self, harness: ConsensusHarness) -> None:
        """Each number of each message is replaced, and entries that no correct peer sends are added."""
        packets = _one_of_each(harness)
        assert {type(packet.message) for packet in packets} <= set(harness.engine.message_types.values())
        for packet in packets:
            for event in _hostile(packet):
                for number in (1, 2):
                    _take(harness.led().nodes[number], event)

    def test_effects_do_not_depend_on_the_hashes_of_strings(self, harness: ConsensusHarness) -> None:
        """A loop over a set of node ids has another order in each process, so a run could not be repeated."""
        asked = (harness.engine, harness.config, harness.election_timeout_us)
        found = {call_elsewhere(effects_of_a_run, *asked, hash_seed=seed) for seed in (1, 2)}
        assert len(found) == 1

    def test_a_run_reads_no_clock_and_opens_and_starts_nothing(self, harness: ConsensusHarness) -> None:
        """A core that looks outside of its arguments cannot be replayed. It may look without using what it sees."""
        _, found = outside_calls(effects_of_a_run, harness.engine, harness.config, harness.election_timeout_us)
        assert not found, f"the core calls {', '.join(sorted(found))}"


def effects_of_a_run(engine: type[ConsensusEngine], config: Any, election_timeout_us: int) -> str:
    """Return the effects of a run with elections, writes and reads. It is called in another process."""
    harness = ConsensusHarness(engine, config, election_timeout_us)
    cluster = harness.led(5 if REPLICATES in engine.capabilities else 1)
    cluster.propose(1, b"a", b"b")
    cluster.read(1)
    if len(cluster.nodes) > 1:
        cluster.crash(1)
    cluster.advance(4 * cluster.timeout_us)
    return repr([node.readies for node in cluster.nodes.values()])


def _one_of_each(harness: ConsensusHarness) -> list[InFlightMessage]:
    """Return one message of each type that a run sends."""
    cluster, found = harness.led(), dict[type, InFlightMessage]()
    cluster.propose(1, b"a")
    cluster.transfer(1, 2)
    while cluster.network:
        packet = cluster.network.popleft()
        found.setdefault(type(packet.message), packet)
        cluster.deliver(packet)
    return list(found.values())


def _hostile(packet: InFlightMessage) -> Iterator[Received]:
    """Return the message with each of its numbers replaced, and with other entries."""
    sender, kind = node_name(packet.sender), type(packet.message)
    fields = msgspec.to_builtins(packet.message)
    for changed in _with_other_numbers(fields):
        try:
            message = msgspec.convert(changed, kind)
        except msgspec.ValidationError:
            continue
        yield Received(sender, message, packet.entries)
    for entries in ENTRIES:
        yield Received(sender, packet.message, entries)


def _with_other_numbers(value: Any) -> Iterator[Any]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from NUMBERS
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: other} for other in _with_other_numbers(inner))
    elif isinstance(value, list | tuple):
        for at, inner in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in _with_other_numbers(inner))


def _take(node: ClusterNode, event: Received) -> None:
    """Give a message to a core twice, and take its effects."""
    for _ in range(2):
        node.running.step([event])
        while (ready := node.running.take_ready()) is not None:
            if ready.fatal is not None:
                return
