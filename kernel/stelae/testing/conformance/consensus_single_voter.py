"""Conformance checks for consensus engines: a group with one member, which every engine must serve."""

from __future__ import annotations

import random

from stelae.spi.consensus import HardState, Role
from stelae.spi.consensus_events import Campaign, Proposal, Propose, Received, Removed, StepDown
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import ENTRY_BYTES_MAX, EntryKind
from stelae.testing.conformance.consensus_cluster import ConsensusCluster
from stelae.testing.conformance.consensus_disk import ConsensusDisk, effects_of
from stelae.testing.conformance.consensus_harness import ConsensusHarness
from stelae.testing.conformance.consensus_nodes import UnknownMessage, node_name

HISTORIES = 30
"""The number of random histories."""

STEPS = 60
"""The number of steps of each history."""


class SingleVoterChecks:
    """Checks of a group with one member; part of ``ConsensusConformance``."""

    # -- starting --------------------------------------------------------------------------------

    def test_a_single_voter_leads_without_being_asked(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster(1)
        cluster.advance(3 * cluster.timeout_us)
        assert cluster.role(1) is Role.LEADER and cluster.nodes[1].status.serving
        assert cluster.nodes[1].status.leader == node_name(1)

    def test_every_start_of_a_single_voter_begins_a_later_term_with_an_empty_entry(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(1)
        cluster.propose(1, b"a")
        for _ in range(3):
            cluster.restart(1)
            _lead(cluster)
            cluster.propose(1, b"more")
        node = cluster.nodes[1]
        begun = [e.kind for e in node.log if e.kind is not EntryKind.WRITE]
        assert begun == [EntryKind.CONFIG, EntryKind.NOOP, EntryKind.NOOP, EntryKind.NOOP]
        terms = [entry.op_id.term for entry in node.log if entry.kind is not EntryKind.WRITE]
        assert terms == sorted(set(terms)), "a term was used twice"
        assert node.disk.hard_state == HardState(terms[-1], node_name(1))
        assert node.status.config.op_id == OpId(terms[0], 1)

    def test_the_term_of_a_start_that_crashed_early_is_not_used_again(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster(1)
        cluster.nodes[1].holds = True
        cluster.advance(3 * cluster.timeout_us)
        term = cluster.nodes[1].status.term
        cluster.persist(1, partly=1)
        assert cluster.nodes[1].disk.hard_state.term == term >= 1, "the term is durable before anything of it"
        cluster.restart(1)
        cluster.nodes[1].holds = False
        _lead(cluster)
        assert cluster.nodes[1].status.term > term

    # -- committing ------------------------------------------------------------------------------

    def test_a_single_voter_commits_what_is_durable_and_nothing_else(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1)
        cluster.nodes[1].holds = True
        tokens = cluster.propose(1, b"a", b"b")
        tokens += cluster.propose(1, b"c")
        assert [cluster.accepted[token] for token in tokens] == [OpId(1, 2), OpId(1, 3), OpId(1, 4)]
        assert cluster.nodes[1].status.commit == 1
        cluster.persist(1)
        assert cluster.bodies(1) == [b"a", b"b"]
        cluster.persist(1)
        assert cluster.bodies(1) == [b"a", b"b", b"c"]
        assert cluster.nodes[1].status.durable_index == 4

    def test_the_uncommitted_end_of_a_log_commits_with_the_first_entry_of_the_next_term(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(1)
        cluster.nodes[1].holds = True
        cluster.propose(1, b"a", b"b")
        cluster.persist(1, partly=1)
        cluster.restart(1)
        assert (cluster.nodes[1].status.commit, cluster.nodes[1].status.last) == (1, OpId(1, 2))
        cluster.step(1, Campaign(hinted=False))
        while cluster.role(1) is not Role.LEADER:
            cluster.persist(1)
        assert cluster.nodes[1].status.commit == 1, "an entry of an older term commits only with one of this term"
        while cluster.nodes[1].pending:
            cluster.persist(1)
        assert cluster.bodies(1) == [b"a"] and cluster.nodes[1].status.commit == 3

    def test_the_first_config_is_in_metadata_only_once_its_entry_is_committed(self, harness: ConsensusHarness) -> None:
        cluster = harness.cluster(1)
        cluster.nodes[1].holds = True
        cluster.step(1, Campaign())
        while cluster.role(1) is not Role.LEADER:
            cluster.persist(1)
        assert cluster.nodes[1].status.committed_config.op_id == ZERO == cluster.nodes[1].disk.config.op_id
        while cluster.nodes[1].pending:
            cluster.persist(1)
        assert cluster.nodes[1].status.committed_config.op_id == OpId(1, 1) == cluster.nodes[1].disk.config.op_id

    def test_a_config_that_metadata_lacks_after_a_crash_is_saved_by_the_next_start(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(1)
        cluster.propose(1, b"a")
        cluster.crash(1)
        cluster.nodes[1].disk.config = cluster.initial
        cluster.start(1)
        _lead(cluster)
        assert cluster.nodes[1].disk.config.op_id == OpId(1, 1)

    def test_the_all_replicated_index_of_a_single_voter_is_what_it_has_committed(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(1)
        cluster.nodes[1].holds = True
        cluster.propose(1, b"a")
        assert cluster.nodes[1].status.all_replicated_index == 1
        cluster.persist(1)
        assert cluster.nodes[1].status.all_replicated_index == 2
        cluster.restart(1)
        assert cluster.nodes[1].status.all_replicated_index == 0

    def test_a_single_voter_goes_on_from_a_log_that_was_collected(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1)
        cluster.propose(1, b"a", b"b")
        cluster.collect(1)
        cluster.restart(1)
        status = cluster.nodes[1].status
        assert (status.last, status.commit) == (OpId(1, 3), 3)
        _lead(cluster)
        cluster.propose(1, b"c")
        assert cluster.bodies(1) == [b"c"] and cluster.nodes[1].status.last.index == 5

    # -- serving ---------------------------------------------------------------------------------

    def test_a_single_voter_serves_only_once_its_term_has_a_committed_entry(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1)
        cluster.restart(1)
        cluster.nodes[1].holds = True
        cluster.step(1, Campaign(hinted=False))
        before = cluster.read(1)
        while cluster.role(1) is not Role.LEADER:
            cluster.persist(1)
        (token,) = cluster.propose(1, b"a")
        read = cluster.read(1)
        assert cluster.rejected == {before: "NOT_LEADER", token: "CONFIGURING", read: "CONFIGURING"}
        assert not cluster.nodes[1].status.serving and cluster.reads == {}

    def test_a_read_of_a_single_voter_is_ready_at_once_and_writes_nothing(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1)
        cluster.propose(1, b"a")
        cluster.nodes[1].holds = True
        cluster.propose(1, b"not durable")
        last = cluster.nodes[1].status.last
        token = cluster.read(1)
        assert cluster.reads == {token: 2} and cluster.nodes[1].status.last == last

    def test_a_single_voter_refuses_what_no_engine_accepts(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1)
        large, good = cluster.propose(1, bytes(ENTRY_BYTES_MAX + 1), b"small")
        cluster.step(1, Propose((Proposal(901, EntryKind.NOOP, b""), Proposal(902, EntryKind.CONFIG, b""))))
        assert cluster.rejected == {large: "TOO_LARGE", 901: "UNSUPPORTED", 902: "UNSUPPORTED"}
        assert cluster.accepted == {good: OpId(1, 2)}

    def test_a_message_of_another_engine_does_not_disturb_a_single_voter(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1)
        before = cluster.nodes[1].status
        cluster.step(1, Received(node_name(2), UnknownMessage()))
        assert cluster.nodes[1].status == before

    def test_a_single_voter_hands_over_to_itself_only(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1)
        own, any_voter, unknown = cluster.transfer(1, 1), cluster.transfer(1, None), cluster.transfer(1, 9)
        assert cluster.handed_over == {own}
        assert cluster.rejected == {any_voter: "NO_SUCCESSOR", unknown: "NOT_A_VOTER"}
        assert cluster.role(1) is Role.LEADER

    # -- giving up and failing -------------------------------------------------------------------

    def test_a_single_voter_that_steps_down_serves_nothing_until_it_leads_again(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(1)
        cluster.step(1, StepDown())
        (token,) = cluster.propose(1, b"a")
        refused = [token, cluster.read(1), cluster.transfer(1, None), cluster.abort(1), cluster.add(1, 2)]
        assert {cluster.rejected[token] for token in refused} == {"NOT_LEADER"}
        cluster.advance(3 * cluster.timeout_us)
        cluster.propose(1, b"b")
        assert cluster.bodies(1) == [b"b"] and cluster.nodes[1].status.term > 1

    def test_a_single_voter_whose_log_fails_gives_up_and_forgets_what_is_not_durable(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(1)
        cluster.propose(1, b"kept")
        cluster.nodes[1].holds = True
        cluster.propose(1, b"lost")
        cluster.propose(1, b"lost too")
        cluster.fail_persist(1)
        status = cluster.nodes[1].status
        assert status.role is Role.FOLLOWER and status.last == OpId(1, 2) and status.durable_index == 2
        (token,) = cluster.propose(1, b"refused")
        read = cluster.read(1)
        assert cluster.rejected == {token: "NOT_LEADER", read: "NOT_LEADER"}, "it serves although its log failed"

    def test_a_single_voter_leads_again_in_a_later_term_when_its_log_works_again(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.led(1)
        cluster.nodes[1].holds = True
        cluster.propose(1, b"lost")
        cluster.fail_persist(1)
        deadline = cluster.nodes[1].running.next_deadline()
        assert deadline is not None and deadline > cluster.now_us, "the driver could not keep a full disk waiting"
        cluster.nodes[1].holds = False
        cluster.advance(4 * cluster.timeout_us)
        cluster.propose(1, b"a")
        assert cluster.bodies(1) == [b"a"]
        assert [e.op_id for e in cluster.nodes[1].log] == [OpId(1, 1), OpId(2, 2), OpId(2, 3)]

    def test_a_start_whose_first_entry_fails_keeps_the_initial_config_and_tries_again(
        self, harness: ConsensusHarness
    ) -> None:
        cluster = harness.cluster(1)
        cluster.nodes[1].holds = True
        cluster.step(1, Campaign())
        while cluster.role(1) is not Role.LEADER:
            cluster.persist(1)
        cluster.fail_persist(1)
        assert cluster.nodes[1].status.config == cluster.initial and cluster.nodes[1].status.last == ZERO
        cluster.nodes[1].holds = False
        cluster.advance(4 * cluster.timeout_us)
        assert [e.kind for e in cluster.nodes[1].log] == [EntryKind.CONFIG]
        assert cluster.nodes[1].status.serving

    def test_a_single_voter_restarts_from_every_prefix_of_its_durable_effects(self, harness: ConsensusHarness) -> None:
        cluster = harness.led(1)
        cluster.propose(1, b"a", b"b")
        cluster.restart(1)
        _lead(cluster)
        cluster.propose(1, b"c")
        node = cluster.nodes[1]
        effects = [e for ready in node.readies for e in effects_of(ready, node.log, node.disk.base)]
        assert len(effects) > 6
        for count in range(1, len(effects) + 1):
            again = harness.cluster(1)
            again.crash(1)
            disk = again.nodes[1].disk = ConsensusDisk(again.initial)
            for effect in effects[:count]:
                effect(disk)
            wrote, term = [e.body for e in disk.entries if e.kind is EntryKind.WRITE], disk.hard_state.term
            again.start(1)
            status = again.nodes[1].status
            assert (status.term, status.last, status.commit, status.serving) == (term, disk.last, 0, False)
            _lead(again)
            assert again.bodies(1) == wrote and again.nodes[1].status.term > term

    def test_a_single_voter_stops_once_it_is_told_that_a_newer_config_removed_it(
        self, harness: ConsensusHarness
    ) -> None:
        """Its files may be an old copy of a tablet that has moved to other nodes since."""
        cluster = harness.led(1)
        cluster.restart(1)
        cluster.step(1, StepDown(), Removed(OpId(9, 9)))
        assert cluster.role(1) is Role.NON_PARTICIPANT
        cluster.advance(4 * cluster.timeout_us)
        assert cluster.role(1) is Role.NON_PARTICIPANT and cluster.nodes[1].running.next_deadline() is None

    # -- histories -------------------------------------------------------------------------------

    def test_the_same_events_give_a_single_voter_the_same_effects(self, harness: ConsensusHarness) -> None:
        runs = []
        for _ in range(2):
            cluster = harness.led(1)
            random_history(cluster, random.Random(7))
            runs.append(repr(cluster.nodes[1].readies))
        assert runs[0] == runs[1]

    def test_random_histories_of_a_single_voter_lose_nothing_that_was_committed(
        self, harness: ConsensusHarness
    ) -> None:
        for seed in range(HISTORIES):
            cluster = harness.led(1)
            wrote = random_history(cluster, random.Random(seed))
            found = cluster.bodies(1)
            assert [body for body in wrote if body in set(found)] == found, f"seed {seed}: order or repetition"
            terms = [entry.op_id for entry in cluster.nodes[1].log]
            assert terms == sorted(set(terms)), f"seed {seed}: an op id is used twice"


def _lead(cluster: ConsensusCluster) -> None:
    """Let node 1 begin its term and serve."""
    cluster.advance(3 * cluster.timeout_us)
    assert cluster.nodes[1].status.serving


def random_history(cluster: ConsensusCluster, rng: random.Random) -> list[bytes]:
    """Drive node 1 at random through writes, torn writes, failures and crashes, and return the bodies of all proposals.

    The cluster checks after each step that what was committed stays, and that no read misses it."""
    node = cluster.nodes[1]
    node.holds = True
    wrote: list[bytes] = []
    for number in range(STEPS):
        draw = rng.random()
        if draw < 0.35:
            bodies = [b"%d.%d" % (number, i) for i in range(1 + int(rng.random() * 3))]
            wrote += bodies
            cluster.propose(1, *bodies)
        elif draw < 0.45:
            cluster.read(1)
        elif draw < 0.75 and node.pending:
            cluster.persist(1)
        elif draw < 0.80 and node.pending:
            cluster.persist(1, partly=int(rng.random() * 4))
            cluster.restart(1)
        elif draw < 0.84:
            cluster.restart(1)
        elif draw < 0.88 and node.pending:
            cluster.fail_persist(1)
        elif draw < 0.91:
            cluster.step(1, StepDown())
        else:
            cluster.advance(cluster.timeout_us)
    node.holds = False
    cluster.restart(1)
    _lead(cluster)
    return wrote
