"""Conformance checks for consensus engines: proposals, reads, and the form of messages and effects."""

from __future__ import annotations

import msgspec

from stelae.spi.consensus import Role
from stelae.spi.consensus_events import Campaign, Received
from stelae.spi.ids import OpId
from stelae.spi.log import ENTRY_BYTES_MAX
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import InFlightMessage, UnknownMessage, node_name


class ServiceChecks:
    """Checks of proposals, reads and form; part of ``ConsensusConformance``."""

    def test_proposals_are_accepted_in_order_at_the_op_ids_they_get(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        tokens = cluster.propose(1, b"a", b"b", b"c")
        assert [cluster.accepted[t] for t in tokens] == [OpId(1, 2), OpId(1, 3), OpId(1, 4)]
        cluster.deliver_all()
        assert cluster.bodies(3) == [b"a", b"b", b"c"]

    def test_a_follower_refuses_proposals_and_reads_and_names_the_leader(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        (token,) = cluster.propose(2, b"a")
        read = cluster.read(2)
        assert cluster.rejected == {token: "NOT_LEADER", read: "NOT_LEADER"}
        assert cluster.nodes[2].readies[-1].rejections[0].leader == node_name(1)

    def test_a_leader_refuses_proposals_and_reads_until_its_term_has_a_committed_entry(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.cluster()
        cluster.step(1, Campaign())
        while cluster.nodes[1].status.role is not Role.LEADER:
            cluster.deliver(cluster.network.popleft())
        (token,) = cluster.propose(1, b"a")
        read = cluster.read(1)
        assert cluster.rejected == {token: "CONFIGURING", read: "CONFIGURING"}

    def test_an_entry_above_the_maximum_is_refused(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        tokens = cluster.propose(1, bytes(ENTRY_BYTES_MAX + 1), b"small")
        assert cluster.rejected == {tokens[0]: "TOO_LARGE"}
        assert cluster.accepted == {tokens[1]: OpId(1, 2)}

    def test_a_read_waits_for_a_majority_and_writes_nothing(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.propose(1, b"a")
        cluster.deliver_all()
        last = cluster.nodes[1].status.last
        token = cluster.read(1)
        assert cluster.reads == {}
        cluster.deliver_all()
        assert cluster.reads == {token: 2}
        assert cluster.nodes[1].status.last == last

    def test_answers_from_before_a_read_do_not_confirm_it(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        old: list[InFlightMessage] = []
        cluster.propose(1, b"a")
        cluster.read(1)
        while cluster.network:
            packet = cluster.network.popleft()
            old += [packet] if packet.to == 1 else []
            cluster.deliver(packet)
        cluster.isolate(1)
        late = cluster.read(1)
        for packet in old:
            cluster.deliver(packet)
        assert late not in cluster.reads

    def test_reads_of_a_deposed_leader_are_refused(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        cluster.isolate(1)
        token = cluster.read(1)
        cluster.advance(4 * cluster.timeout_us, beats=False)
        assert cluster.rejected == {token: "LEADERSHIP_LOST"}
        assert cluster.reads == {}

    # -- form ------------------------------------------------------------------------------------

    def test_a_message_of_another_engine_is_ignored(self, harness: ConsensusHarness) -> None:
        cluster = harness.led()
        before = cluster.nodes[2].status
        cluster.step(2, Received(node_name(1), UnknownMessage()))
        assert cluster.nodes[2].status == before

    def test_the_same_events_give_the_same_effects(self, harness: ConsensusHarness) -> None:
        runs = []
        for _ in range(2):
            cluster = harness.led()
            cluster.propose(1, b"a", b"b")
            cluster.read(1)
            cluster.crash(1)
            cluster.advance(5 * cluster.timeout_us)
            runs.append(repr([node.readies for node in cluster.nodes.values()]))
        assert runs[0] == runs[1]

    def test_messages_survive_the_codec(self, harness: ConsensusHarness) -> None:
        kinds = {kind: t for t, kind in harness.engine.message_types.items()}
        cluster = harness.led()
        cluster.propose(1, b"a")
        readies = [ready for node in cluster.nodes.values() for ready in node.readies]
        outbounds = [o.message for r in readies for o in (*r.at_once, *r.after_persist)]
        sent = [*outbounds, *(wanted.message for ready in readies for wanted in ready.ranges)]
        assert sent and harness.engine.is_vote_request <= set(harness.engine.message_types)
        for message in sent:
            message_type = type(message)
            assert message_type in kinds
            copy = msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=message_type)
            assert copy == message
