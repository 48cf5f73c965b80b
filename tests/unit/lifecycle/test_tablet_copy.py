"""A copy to this node: complete, refused, interrupted, cancelled, out of space (T1, T3 to T5, T9; rules 17 to 22)."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import msgspec
import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.metadata_files import CrashPoints
from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle import offer_check, tablet_loader
from stelae.lifecycle.blocking_steps import OffLoop
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.lifecycle.copy_source import ALL_DAMAGED
from stelae.lifecycle.copy_states import CopyState
from stelae.lifecycle.quarantine import list_quarantine
from stelae.lifecycle.replaced_damage import AGAIN_US, KEPT_US
from stelae.lifecycle.tablet_copy import SET_ASIDE_DAMAGED
from stelae.spi.consensus import HardState
from stelae.spi.copy_plan import CopyOutcome
from stelae.spi.errors import Corrupt, Full, Overloaded, StelaeError
from stelae.spi.ids import OpId, TabletId
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_node import (
    CONFIG,
    FOLLOWER,
    LEADER,
    TERM,
    CopyNode,
    FakeNetwork,
    check_complete,
    lagging_disk,
    never_disk,
    served,
    tombstone_disk,
)
from tests.unit.lifecycle.disk_node import LAYOUT, NODE, TABLET

SERVED = served()
EXPORTED = served(export=True)
CHUNKS = sum(-(-len(data) // FakeNetwork({}).chunk_bytes) for data in SERVED.contents.values())
VOTED, ADOPTED = HardState(4, NODE), HardState(TERM, None)


def network(leader: Any = SERVED, follower: Any = SERVED) -> FakeNetwork:
    return FakeNetwork({LEADER: leader, FOLLOWER: follower})


def lagging(sources: FakeNetwork | None = None, crash: CrashPoints | None = None) -> CopyNode:
    node = CopyNode(lagging_disk(), sources or network(), crash)
    one = node.recovered.pop(TABLET)
    node.add_replica(TABLET, one.superblock, one.consensus)
    return node


@pytest.mark.parametrize("what", [SERVED, EXPORTED], ids=["files", "export"])
def test_a_tombstone_becomes_a_replica_and_keeps_no_vote_of_an_older_term(what: Any) -> None:
    node = CopyNode(tombstone_disk(), network(what))
    copy = node.ask_until_end()
    assert copy.sequence.committed
    check_complete(node, ADOPTED)
    assert node.hosted[TABLET].hard_state == ADOPTED
    assert node.network.slots == 1 and node.network.open == set()


@pytest.mark.parametrize("what", [SERVED, EXPORTED], ids=["files", "export"])
def test_a_new_member_without_a_replica_gets_one(what: Any) -> None:
    """T1."""
    node = CopyNode(never_disk(), network(what))
    assert node.ask_until_end(member_type=MemberType.PRE_VOTER).sequence.committed
    check_complete(node, ADOPTED)


def test_a_replica_that_lags_is_set_aside_and_replaced() -> None:
    node = lagging()
    assert node.ask_until_end(hosted=True).sequence.committed
    check_complete(node, ADOPTED)
    assert node.disk.listdir(LAYOUT.quarantine) == ["t.1"], "its rows and its log can still be looked at"
    assert {"data", "wals"} <= set(node.disk.listdir(f"{LAYOUT.quarantine}/t.1"))


def damaged(sources: FakeNetwork | None = None) -> CopyNode:
    """A node whose replica has the whole log that the leader needs, and has found damage in its rows."""
    node = lagging(sources)
    fail_damaged(node)
    return node


def fail_damaged(node: CopyNode) -> None:
    replica: Any = node.peers.replicas[TABLET]
    replica.failure = "damage found: a bad page"
    replica.read_faults.store_failed(replica.failure, Corrupt("a bad page", path="1.parquet"))


def test_a_damaged_replica_is_set_aside_and_replaced_although_its_log_is_whole() -> None:
    node = damaged()
    assert node.ask_until_end(hosted=True, log_base=OpId(1, 1)).sequence.committed
    check_complete(node, ADOPTED)
    (one,) = list_quarantine(node.disk, LAYOUT)
    assert one.about is not None and one.about.reason == SET_ASIDE_DAMAGED


def damaged_at_start(monkeypatch: pytest.MonkeyPatch, path: str) -> CopyNode:
    """A node whose replica did not start, because a file of it is damaged."""

    def recover(*_args: object) -> None:
        raise Corrupt("a bad page", path=path, offset=4096)

    disk = lagging_disk()
    with monkeypatch.context() as patched:
        patched.setattr(tablet_loader, "recover", recover)
        node = CopyNode(disk, network())
    assert node.recovered == {} and "a bad page" in node.loader.failed[TABLET]
    return node


@pytest.mark.parametrize("hosted", [True, False])
def test_a_replica_that_did_not_start_because_its_rows_are_damaged_is_replaced(
    monkeypatch: pytest.MonkeyPatch, hosted: bool
) -> None:
    """To its leader it looks like none."""
    node = damaged_at_start(monkeypatch, f"{LAYOUT.data_of(TABLET)}/1.parquet")
    assert node.ask_until_end(hosted=hosted).sequence.committed
    check_complete(node, ADOPTED)
    (one,) = list_quarantine(node.disk, LAYOUT)
    assert one.about is not None and one.about.reason == SET_ASIDE_DAMAGED
    assert TABLET not in node.loader.failed and node.loader.damaged == set()


def test_a_replica_that_did_not_start_for_another_reason_stays_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    node = damaged_at_start(monkeypatch, f"{LAYOUT.wals}/1.seg")
    assert node.loader.damaged == set()
    assert node.refusal() == CopyRefusalCode.OFFLINE


def test_a_damaged_replica_whose_last_op_id_is_not_known_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 19: it might have acknowledged more than its log says."""
    node = damaged_at_start(monkeypatch, f"{LAYOUT.data_of(TABLET)}/1.parquet")
    node.loader.unknown_op_ids.add(TABLET)
    assert node.refusal() == CopyRefusalCode.LAST_OP_ID_UNKNOWN
    assert node.disk.listdir(LAYOUT.quarantine) == []


def test_a_damaged_replica_stays_where_it_is_while_no_source_serves_a_copy() -> None:
    node = damaged(FakeNetwork({}))
    tree = node.disk.tree()
    assert not node.ask_until_end(hosted=True).sequence.committed
    assert (
        node.disk.tree() == tree and node.peers.replicas[TABLET].failure and node.metrics.counts == ["copies_refused"]
    )


def test_a_damaged_replica_stays_where_it_is_if_every_source_is_damaged_too() -> None:
    """Its rows may be the last good ones of what is damaged there. It was set aside before that was known."""
    spoiled = {name: data[:-1] + bytes([data[-1] ^ 1]) for name, data in SERVED.contents.items()}
    source = type(SERVED)(SERVED.snapshot, spoiled)
    node = damaged(network(leader=source, follower=source))
    tree = node.disk.tree()
    copy = node.ask_until_end(hosted=True)
    assert not copy.sequence.committed and copy.reason == ALL_DAMAGED
    stage = f"{LAYOUT.stage_of(TABLET)}/"
    assert {path: data for path, data in node.disk.tree().items() if not path.startswith(stage)} == tree
    assert node.peers.replicas[TABLET].failure
    node.network.sources.update(network().sources)
    assert node.ask_until_end(hosted=True).sequence.committed, "once there is a good one"
    check_complete(node, ADOPTED)


def test_a_damaged_replica_that_could_not_be_set_aside_is_replaced_once_there_is_space() -> None:
    node = damaged()
    set_aside = node.manager.set_aside

    def fails(*_arguments: Any) -> Any:
        yield OffLoop(lambda: None)
        node.peers.remove(TABLET)
        raise Full("no space")

    node.manager.set_aside = fails  # type: ignore[method-assign]
    assert not node.ask_until_end(hosted=True).sequence.marked
    assert node.loader.damaged == {TABLET} and node.disk.listdir(LAYOUT.quarantine) == []
    node.manager.set_aside = set_aside  # type: ignore[method-assign]
    assert node.ask_until_end(hosted=False).sequence.committed
    check_complete(node, ADOPTED)


def test_a_replica_that_has_failed_for_another_reason_is_not_replaced_in_its_place() -> None:
    node = lagging()
    replica: Any = node.peers.replicas[TABLET]
    replica.failure = "the log cannot be synced"
    assert node.refusal(hosted=True) == CopyRefusalCode.OFFLINE


def test_a_replica_that_is_damaged_again_soon_is_not_replaced_before_a_long_time_has_passed() -> None:
    node = damaged()
    assert node.ask_until_end(hosted=True).sequence.committed
    fail_damaged(node)
    assert node.refusal(hosted=True) == CopyRefusalCode.DAMAGED_AGAIN
    replaced, now_us = node.copies._env.replaced_damage, node.now_us
    assert replaced.lately(TABLET, now_us) and not replaced.lately(TABLET, now_us + AGAIN_US)
    replaced.renew(TABLET, now_us + AGAIN_US)
    assert replaced.lately(TABLET, now_us + 2 * AGAIN_US - 1), "it counts from the end of the copy"
    replaced.renew(TabletId("never damaged"), now_us)
    assert not replaced.lately(TabletId("never damaged"), now_us)
    replaced.note(TabletId("another"), now_us + AGAIN_US + KEPT_US)
    assert not replaced.lately(TABLET, now_us + AGAIN_US), "what is long ago is forgotten"


def test_the_leader_that_asks_again_disturbs_nothing() -> None:
    """T5: while a copy is in progress, and when it is complete."""
    node = CopyNode(tombstone_disk(), network())
    asked: list[object] = []

    def ask_again(_item: str) -> CopyOutcome | None:
        asked.append(node.ask())
        return None

    node.network.on_chunk = ask_again
    node.ask_until_end()
    assert len(asked) > 3 and set(asked) == {None} and node.network.asked == [LEADER]
    check_complete(node, ADOPTED)
    tree = node.disk.tree()
    again = node.ask_until_end()
    assert again.reason.startswith(CopyRefusalCode.ILLEGAL_STATE)
    assert node.disk.tree() == tree


def test_a_source_that_does_not_answer_is_not_asked_on_once_a_leader_of_a_later_term_asks() -> None:
    """T9: the sources of a copy are those that its leader could reach, and the newer request waits for its end."""
    node = CopyNode(tombstone_disk(), network())
    asks_again: list[bool] = []

    def newer_leader(_item: str) -> CopyOutcome | None:
        (copy,) = node.copies.running.values()
        if not asks_again:
            asks_again.append(copy.control.asks_again())
            node.ask(term=100)
        asks_again.append(copy.control.asks_again())
        return None

    node.network.on_chunk = newer_leader
    assert node.ask_until_end().sequence.committed
    assert asks_again[0] and not any(asks_again[1:])


# -- what is refused ------------------------------------------------------------------------------


def test_a_voter_of_the_first_config_without_a_replica_may_not_have_begun_yet() -> None:
    node = CopyNode(never_disk(), network())
    assert node.refusal(config=OpId(1, 1)) == CopyRefusalCode.VOTER_WITHOUT_REPLICA
    assert node.copies.lost == {TABLET: False}


def test_a_copy_that_a_guard_refuses_is_not_admitted_when_it_has_ended_either() -> None:
    """Masters were told that it was in progress, and took the voter for one that had had a replica."""
    node = CopyNode(never_disk(), network())
    copy = node.ask_until_end()
    assert copy.sequence.state is CopyState.ENDED and not copy.admitted
    node = CopyNode(tombstone_disk(), network())
    assert node.ask_until_end().admitted


def test_only_a_copy_that_was_needed_is_worth_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """After each copy the leader asks once more, before it knows that the member has all it needs."""
    caplog.set_level(logging.INFO)
    lagging().refusal(hosted=True, log_base=OpId(1, 7))
    CopyNode(never_disk(), network()).refusal()
    told = [(r.levelno, r.getMessage()) for r in caplog.records if "copy not begun" in r.getMessage()]
    assert [level for level, _ in told] == [logging.INFO, logging.WARNING]
    assert "NOT_NEEDED" in told[0][1] and "VOTER_WITHOUT_REPLICA" in told[1][1]


def begun(place: str, sources: FakeNetwork) -> CopyNode:
    if place == "lagging":
        return lagging(sources)
    return CopyNode(tombstone_disk() if place == "tombstone" else never_disk(), sources)


def test_without_a_free_slot_a_copy_is_throttled_and_costs_no_look_at_the_disk() -> None:
    """A node that gets back a thousand tablets that lag has a few slots, and is asked for all the others meanwhile."""
    node = lagging()
    node.network.slots = 0
    operations = node.disk.faults.operations
    node.manager.look = None  # type: ignore[assignment, method-assign]
    assert node.refusal(hosted=True) == CopyRefusalCode.THROTTLED
    assert node.disk.faults.operations == operations and TABLET in node.peers.replicas


def test_a_term_that_rises_while_the_source_answers_refuses_the_copy_before_the_first_effect() -> None:
    """The guards are applied again when the source has answered: the leader may be deposed by then (rule 17, T4)."""
    node = CopyNode(tombstone_disk(), network())
    begin = node.network.begin

    def slow(source: Any, tablet: Any, done: Any, **form: Any) -> None:
        assert node.vote(TERM + 1) is not None
        begin(source, tablet, done, **form)

    node.network.begin = slow  # type: ignore[method-assign]
    copy = node.ask_until_end()
    assert copy.reason.startswith(CopyRefusalCode.BAD_TERM)
    assert node.block().data_state is DataState.DELETED and not copy.sequence.marked
    assert not node.disk.exists(LAYOUT.stage_of(TABLET)) and node.network.open == set()


def test_a_replica_that_lost_what_it_acknowledged_is_never_a_member_again() -> None:
    """Rule 19."""
    node = CopyNode(tombstone_disk(), network())
    SuperblockFile(node.disk, LAYOUT, TABLET).save(msgspec.structs.replace(node.block(), tombstone="UNKNOWN"))
    copy = node.ask_until_end()
    assert copy.reason.startswith(CopyRefusalCode.LAST_OP_ID_UNKNOWN)
    assert node.block().tombstone == "UNKNOWN"


def test_a_tablet_whose_metadata_cannot_be_read_is_not_copied() -> None:
    """T11: it stays offline, and the masters replace it."""
    disk = lagging_disk()
    disk.replace(LAYOUT.consensus_of(TABLET), b"spoiled")
    node = CopyNode(disk, network())
    tree = node.disk.tree()
    copy = node.ask_until_end(hosted=False)
    assert copy.reason.startswith(CopyRefusalCode.LAST_OP_ID_UNKNOWN)
    assert node.disk.tree() == tree


# -- rule 18: sources ------------------------------------------------------------------------------


def of_store(**changed: str) -> bytes:
    return msgspec.structs.replace(CopyFacts.from_bytes(SERVED.snapshot.facts), **changed).to_bytes()


BEHIND = {
    "an older log": SERVED.changed(last=OpId(1, 26), base=OpId(0, 20)),
    "an older config": SERVED.changed(committed_config=msgspec.structs.replace(CONFIG, op_id=OpId(0, 1))),
    "a log that ends within its items": SERVED.changed(last=OpId(5, 25)),
    "rows of another op id": SERVED.changed(base=OpId(3, 19)),
    "a log above its term": SERVED.changed(term=4),
    "a config above its log": SERVED.changed(committed_config=msgspec.structs.replace(CONFIG, op_id=OpId(5, 27))),
    "another tablet": SERVED.changed(tablet_id="u"),
    "files in another format": SERVED.changed(facts=of_store(store_format="a later one")),
    "files of another engine": SERVED.changed(facts=of_store(store_engine="another")),
    "no facts": SERVED.changed(facts=b"\xc1"),
    "items outside of the stage": SERVED.changed(
        items=(msgspec.structs.replace(SERVED.snapshot.items[0], name="rows/../../x"), *SERVED.snapshot.items)
    ),
    "an item twice": SERVED.changed(items=(*SERVED.snapshot.items, SERVED.snapshot.items[-1])),
}


@pytest.mark.parametrize("wrong", BEHIND.values(), ids=BEHIND)
def test_a_source_that_is_behind_or_wrong_is_not_used_and_another_one_is(wrong: Any) -> None:
    disk = tombstone_disk()
    known = msgspec.structs.replace(CONFIG, op_id=OpId(1, 9))
    ConsensusMetadata(disk, LAYOUT, TABLET).save(VOTED, known)
    node = CopyNode(disk, network(leader=wrong))
    assert node.ask_until_end().sequence.committed
    assert node.network.asked == [LEADER, FOLLOWER] and node.network.open == set()
    check_complete(node, ADOPTED)


@pytest.mark.parametrize(
    ("leader_config", "asked"), [(OpId(3, 20), [LEADER, FOLLOWER]), (OpId(4, 21), [LEADER]), (OpId(1, 5), [LEADER])]
)
def test_a_source_without_the_config_that_its_copied_log_does_not_have_is_passed_over(
    leader_config: OpId, asked: list[Any]
) -> None:
    """The config up to the base comes with the metadata alone: the replica would never learn that it is a member."""
    older = SERVED.changed(committed_config=msgspec.structs.replace(CONFIG, op_id=OpId(1, 5)))
    node = CopyNode(tombstone_disk(), network(leader=older))
    assert node.ask_until_end(config=leader_config).sequence.committed
    assert node.network.asked == asked


def test_without_any_source_that_is_not_behind_nothing_is_changed() -> None:
    older = BEHIND["an older log"]
    node = lagging(network(older, older))
    tree = node.disk.tree()
    copy = node.ask_until_end(hosted=True)
    assert not copy.sequence.marked and "1.26" in copy.reason and node.disk.tree() == tree
    assert TABLET in node.peers.replicas and node.network.asked == [LEADER, FOLLOWER]


def test_a_replica_that_went_on_before_it_was_set_aside_is_not_replaced_by_less() -> None:
    """The last op id of the tombstone counts, not that of the guards (rule 18)."""
    node = lagging(network(SERVED))
    node.manager.shut_down = lambda replica: _ends_at(node, replica, OpId(5, 27))  # type: ignore[method-assign]
    copy = node.ask_until_end(hosted=True)
    assert copy.reason.startswith(CopyRefusalCode.SOURCE_BEHIND)
    assert node.block().data_state is DataState.DELETED and node.block().tombstone == OpId(5, 27)


def _ends_at(node: CopyNode, replica: Any, last: OpId) -> Any:
    node.peers._replicas.pop(replica.tablet_id)
    return last
    yield


def test_a_config_that_the_replica_learned_until_it_was_set_aside_counts() -> None:
    """The guards had seen an older one. The metadata would have refused the older config, but only at the end."""
    node = lagging(network(SERVED, SERVED))
    shut_down = node.manager.shut_down

    def learns(replica: Any) -> Any:
        newer = msgspec.structs.replace(CONFIG, op_id=OpId(4, 23))
        ConsensusMetadata(node.disk, LAYOUT, TABLET).save(VOTED, newer)
        return (yield from shut_down(replica))

    node.manager.shut_down = learns  # type: ignore[method-assign]
    copy = node.ask_until_end(hosted=True)
    assert copy.reason.startswith(CopyRefusalCode.SOURCE_CONFIG_OLD)
    assert node.block().data_state is DataState.DELETED


def test_a_source_that_does_not_answer_is_passed_over() -> None:
    node = CopyNode(tombstone_disk(), network(leader=Overloaded("all slots are in use")))
    assert node.ask_until_end().sequence.committed and node.network.asked == [LEADER, FOLLOWER]


def test_facts_that_the_server_does_not_understand_are_refused_before_the_first_effect() -> None:
    node = CopyNode(tombstone_disk(), network())

    def refuse(_facts: object) -> None:
        raise StelaeError("no such partition scheme")

    node.copies._env = dataclasses.replace(node.copies._env, check_facts=refuse)
    copy = node.ask_until_end()
    assert not copy.sequence.marked and "no such partition scheme" in copy.reason


def test_the_items_of_a_snapshot_are_checked_once_and_not_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 000 items took 0.7 s, four times on the loop, on which all tablets of the node wait."""
    node, checked, check = CopyNode(tombstone_disk(), network()), [], offer_check.check_items

    def noted(*arguments: Any) -> None:
        checked.append(node.on_loop)
        check(*arguments)

    monkeypatch.setattr(offer_check, "check_items", noted)
    assert node.ask_until_end().sequence.committed and checked == [False]


# -- votes during a copy (rule 20, T3) -------------------------------------------------------------


def test_the_tombstone_votes_during_the_copy_and_its_vote_survives_the_copy() -> None:
    node = CopyNode(tombstone_disk(), network())
    votes: list[Any] = []

    def ask_for_a_vote(_item: str) -> CopyOutcome | None:
        if not votes:
            votes.append(node.vote(TERM + 3, FOLLOWER))
        return None

    node.network.on_chunk = ask_for_a_vote
    assert node.ask_until_end().sequence.committed
    assert votes[0] is not None and votes[0].refusal is None
    check_complete(node, HardState(TERM + 3, FOLLOWER))
    assert node.hosted[TABLET].hard_state == HardState(TERM + 3, FOLLOWER)


def test_a_vote_that_is_asked_for_while_the_replica_starts_is_not_given_by_the_voter() -> None:
    """It was given after the metadata was read, and the replica, which did not know it, voted again in that term."""
    node = CopyNode(tombstone_disk(), network())
    votes: list[Any] = []
    host = node.node.host
    node.node.host = lambda recovered: (votes.append(node.vote(TERM + 3)), host(recovered))
    assert node.ask_until_end().sequence.committed and votes == [None]
    assert node.hosted[TABLET].hard_state == ADOPTED == node.metadata()[0]


def test_a_first_copy_does_not_vote() -> None:
    node = CopyNode(never_disk(), network())
    votes: list[Any] = []
    node.network.on_chunk = lambda _item: votes.append(node.vote(TERM + 3))
    assert node.ask_until_end(member_type=MemberType.PRE_VOTER).sequence.committed
    assert votes and set(votes) == {None}


def test_a_copy_by_export_has_the_history_floor_of_its_source_from_its_first_manifest_on() -> None:
    """Versions below the floor are not in the export, so reads there must be refused and not lack rows."""
    node = CopyNode(never_disk(), network(served(export=True, floor=15 << 12)))
    node.ask_until_end(member_type=MemberType.PRE_VOTER)
    again = CopyNode(node.disk.clone(), FakeNetwork({}))
    assert again.recovered[TABLET].store.history_floor == 15 << 12
