"""A copy to this node: complete, refused, interrupted, cancelled, out of space (T1, T3 to T5, T9; rules 17 to 22)."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.settings import TabletSettings
from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.lifecycle.copy_settings import StageSettings
from stelae.spi.consensus import HardState
from stelae.spi.copy_plan import CopyOutcome, Interruption, Partial
from stelae.spi.errors import Overloaded, StelaeError
from stelae.spi.ids import OpId
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_node import (
    BASE,
    CONFIG,
    FOLLOWER,
    LEADER,
    TERM,
    CopyNode,
    FakeNetwork,
    check_complete,
    check_never,
    check_tombstone,
    lagging_disk,
    never_disk,
    served,
    tombstone_disk,
)
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, NODE, SCHEMA, TABLET

SERVED = served()
EXPORTED = served(export=True)
CHUNKS = sum(-(-len(data) // FakeNetwork({}).chunk_bytes) for data in SERVED.contents.values())
VOTED, ADOPTED = HardState(4, NODE), HardState(TERM, None)


def network(leader: Any = SERVED, follower: Any = SERVED) -> FakeNetwork:
    return FakeNetwork({LEADER: leader, FOLLOWER: follower})


def lagging(sources: FakeNetwork | None = None) -> CopyNode:
    node = CopyNode(lagging_disk(), sources or network())
    one = node.recovered.pop(TABLET)
    node.add_replica(TABLET, one.superblock, one.consensus)
    return node


@pytest.mark.parametrize("what", [SERVED, EXPORTED], ids=["files", "export"])
def test_a_tombstone_becomes_a_replica_and_keeps_no_vote_of_an_older_term(what: Any) -> None:
    node = CopyNode(tombstone_disk(), network(what))
    copy = node.ask_until_end()
    assert copy.sequence.committed and copy.refused is None
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
    assert again.refused is not None and again.refused.code is CopyRefusalCode.ILLEGAL_STATE
    assert node.disk.tree() == tree


# -- rule 17: what is refused changes no byte ------------------------------------------------------

REFUSED: list[tuple[str, CopyRefusalCode, dict[str, Any]]] = [
    ("tombstone", CopyRefusalCode.INVALID_NAME, {"to": LEADER}),
    ("tombstone", CopyRefusalCode.OTHER_CONSENSUS_ENGINE, {"consensus": "local"}),
    ("tombstone", CopyRefusalCode.ILLEGAL_STATE, {"hosted": True}),
    ("tombstone", CopyRefusalCode.BAD_TERM, {"term": 3}),
    ("tombstone", CopyRefusalCode.OTHER_LAST_OP_ID, {"last": OpId(1, 8)}),
    ("lagging", CopyRefusalCode.ILLEGAL_STATE, {"hosted": False}),
    ("lagging", CopyRefusalCode.BAD_TERM, {"hosted": True, "term": 3}),
    ("lagging", CopyRefusalCode.OTHER_LAST_OP_ID, {"hosted": True, "last": OpId(1, 8)}),
    ("lagging", CopyRefusalCode.NOT_NEEDED, {"hosted": True, "log_base": OpId(1, 7)}),
    ("never", CopyRefusalCode.VOTER_WITHOUT_REPLICA, {}),
    ("never", CopyRefusalCode.ILLEGAL_STATE, {"hosted": True}),
]


@pytest.mark.parametrize(("place", "code", "changed"), REFUSED)
@pytest.mark.parametrize("slots", [1, 0])
def test_a_request_that_a_guard_refuses_changes_no_byte(
    place: str, code: CopyRefusalCode, changed: dict[str, Any], slots: int
) -> None:
    sources = network()
    node = begun(place, sources)
    sources.slots = slots
    tree, operations = node.disk.tree(), node.disk.faults.operations
    copy = node.ask_until_end(**changed)
    assert copy.refused is not None and copy.refused.code is code
    assert node.disk.tree() == tree and node.disk.faults.operations == operations
    assert sources.asked == [] and sources.slots == slots
    assert (TABLET in node.peers.replicas) == (place == "lagging")
    assert node.metrics.counts == ["copies_refused"]


def begun(place: str, sources: FakeNetwork) -> CopyNode:
    if place == "lagging":
        return lagging(sources)
    return CopyNode(tombstone_disk() if place == "tombstone" else never_disk(), sources)


def test_without_a_free_slot_a_copy_is_throttled_and_never_waits() -> None:
    node = lagging()
    node.network.slots = 0
    operations = node.disk.faults.operations
    copy = node.ask_until_end(hosted=True)
    assert copy.refused is not None and copy.refused.code is CopyRefusalCode.THROTTLED
    assert node.disk.faults.operations == operations and TABLET in node.peers.replicas


def test_a_term_that_rises_while_the_source_answers_refuses_the_copy_before_the_first_effect() -> None:
    """The guards are applied again when the source has answered: the leader may be deposed by then (rule 17, T4)."""
    node = CopyNode(tombstone_disk(), network())
    begin = node.network.begin

    def slow(source: Any, tablet: Any, done: Any) -> None:
        assert node.vote(TERM + 1) is not None
        begin(source, tablet, done)

    node.network.begin = slow  # type: ignore[method-assign]
    copy = node.ask_until_end()
    assert copy.refused is not None and copy.refused.code is CopyRefusalCode.BAD_TERM
    assert node.block().data_state is DataState.DELETED and not copy.sequence.marked
    assert not node.disk.exists(LAYOUT.stage_of(TABLET)) and node.network.open == set()


def test_a_replica_that_lost_what_it_acknowledged_is_never_a_member_again() -> None:
    """Rule 19."""
    node = CopyNode(tombstone_disk(), network())
    SuperblockFile(node.disk, LAYOUT, TABLET).save(msgspec.structs.replace(node.block(), tombstone="UNKNOWN"))
    copy = node.ask_until_end()
    assert copy.refused is not None and copy.refused.code is CopyRefusalCode.LAST_OP_ID_UNKNOWN
    assert node.block().tombstone == "UNKNOWN"


def test_a_tablet_whose_metadata_cannot_be_read_is_not_copied() -> None:
    """T11: it stays offline, and the masters replace it."""
    disk = lagging_disk()
    disk.replace(LAYOUT.consensus_of(TABLET), b"spoiled")
    node = CopyNode(disk, network())
    tree = node.disk.tree()
    copy = node.ask_until_end(hosted=False)
    assert copy.refused is not None and copy.refused.code is CopyRefusalCode.LAST_OP_ID_UNKNOWN
    assert node.disk.tree() == tree


# -- rule 18: sources ------------------------------------------------------------------------------

BEHIND = {
    "an older log": SERVED.changed(last=OpId(1, 26), base=OpId(0, 20)),
    "an older config": SERVED.changed(committed_config=msgspec.structs.replace(CONFIG, op_id=OpId(0, 1))),
    "a log that ends within its items": SERVED.changed(last=OpId(5, 25)),
    "rows of another op id": SERVED.changed(base=OpId(3, 19)),
    "a log above its term": SERVED.changed(term=4),
    "a config above its log": SERVED.changed(committed_config=msgspec.structs.replace(CONFIG, op_id=OpId(5, 27))),
    "another tablet": SERVED.changed(tablet_id="u"),
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
    node.manager._shut_down = lambda replica: _ends_at(node, replica, OpId(5, 27))  # type: ignore[method-assign]
    copy = node.ask_until_end(hosted=True)
    assert copy.refused is not None and copy.refused.code is CopyRefusalCode.SOURCE_BEHIND
    assert node.block().data_state is DataState.DELETED and node.block().tombstone == OpId(5, 27)


def _ends_at(node: CopyNode, replica: Any, last: OpId) -> Any:
    node.peers._replicas.pop(replica.tablet_id)
    return last
    yield


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


# -- interruptions (T7, T9) ------------------------------------------------------------------------


def interrupting(after: int, ends: CopyOutcome, times: int = 1) -> Any:
    """End a run at each ``after``-th chunk, ``times`` times."""
    seen = {"chunks": 0, "times": times}

    def on_chunk(_item: str) -> CopyOutcome | None:
        seen["chunks"] += 1
        if seen["chunks"] % after == 0 and seen["times"]:
            seen["times"] -= 1
            return ends
        return None

    return on_chunk


LOST = Partial(why=Interruption.SOURCES_LOST, have={}, reason="no answer")
ENDED = Partial(why=Interruption.SESSIONS_ENDED, have={}, reason="the session has expired")


@pytest.mark.parametrize("ends", [LOST, ENDED])
def test_an_interrupted_copy_goes_on_with_what_it_has_as_long_as_something_arrives(ends: CopyOutcome) -> None:
    node = CopyNode(tombstone_disk(), network())
    node.network.on_chunk = interrupting(3, ends, times=10)
    assert node.ask_until_end().sequence.committed
    assert CHUNKS > 10 and len(node.network.fetched) == CHUNKS, "nothing was fetched twice"
    check_complete(node, ADOPTED)


def test_a_copy_whose_sources_are_gone_is_abandoned_and_the_next_one_fetches_the_rest() -> None:
    node = CopyNode(tombstone_disk(), network())
    node.network.on_chunk = interrupting(8, LOST)
    lose = node.network.on_chunk

    def on_chunk(item: str) -> CopyOutcome | None:
        ends = lose(item)
        if ends is not None:
            node.network.sources.clear()
        return ends

    node.network.on_chunk = on_chunk
    copy = node.ask_until_end()
    assert copy.sequence.marked and not copy.sequence.committed
    check_tombstone(node, VOTED)
    assert node.metrics.counts == ["copies_abandoned"] and node.network.slots == 1
    again = CopyNode(node.disk.clone(), network())
    assert again.ask_until_end().sequence.committed
    assert len(node.network.fetched) == 7 and len(again.network.fetched) == CHUNKS - 7
    check_complete(again, ADOPTED)


def test_a_source_with_damaged_bytes_is_not_used_again() -> None:
    """T6."""
    spoiled = {name: data[:-1] + bytes([data[-1] ^ 1]) for name, data in SERVED.contents.items()}
    damaged = type(SERVED)(SERVED.snapshot, spoiled)
    node = CopyNode(tombstone_disk(), network(leader=damaged))
    assert node.ask_until_end().sequence.committed
    assert node.network.asked[0] == LEADER and set(node.network.asked[1:]) == {FOLLOWER}
    check_complete(node, ADOPTED)
    node = CopyNode(tombstone_disk(), network(leader=damaged, follower=damaged))
    copy = node.ask_until_end()
    assert not copy.sequence.committed and "damaged" in copy.reason
    check_tombstone(node, VOTED)


def test_a_source_that_goes_on_meanwhile_is_copied_as_it_is_then() -> None:
    node = CopyNode(tombstone_disk(), network())
    lose = interrupting(8, ENDED)

    def on_chunk(item: str) -> CopyOutcome | None:
        ends = lose(item)
        if ends is not None:
            node.network.sources[LEADER] = served(further=3)
        return ends

    node.network.on_chunk = on_chunk
    assert node.ask_until_end().sequence.committed
    check_complete(node, ADOPTED, further=3)


def test_a_full_disk_ends_the_copy_and_gets_back_what_the_stage_used() -> None:
    """T9."""
    for spare in (0, 300, 900, 1500):
        node = CopyNode(tombstone_disk(), network())
        used = sum(len(data) for data in node.disk.tree().values())
        node.disk.faults.capacity_bytes = used + spare
        copy = node.ask_until_end()
        assert not copy.sequence.committed
        node.disk.faults.capacity_bytes = None
        again = CopyNode(node.disk.clone(), network())
        check_tombstone(again, VOTED)
        assert again.ask_until_end().sequence.committed
        check_complete(again, ADOPTED)


def test_a_replica_that_finds_no_space_for_its_tombstone_starts_again() -> None:
    """It was offline until the next start of its node, because the disk was full for a moment."""
    node = lagging()
    node.disk.faults.capacity_bytes = sum(len(data) for data in node.disk.tree().values())
    copy = node.ask_until_end(hosted=True)
    assert not copy.sequence.marked and TABLET in node.peers.replicas
    node.disk.faults.capacity_bytes = None
    assert node.ask_until_end(hosted=True).sequence.committed


def test_a_snapshot_that_is_larger_than_a_stage_may_be_is_given_up() -> None:
    node = CopyNode(tombstone_disk(), network())
    node.copies._env = dataclasses.replace(node.copies._env, settings=StageSettings(bytes_max=1 << 20, rounds_max=0))
    object.__setattr__(node.copies._env.settings, "bytes_max", 100)
    copy = node.ask_until_end()
    assert "raise stage_bytes_max" in copy.reason
    check_tombstone(node, VOTED)


# -- cancelling and deleting -----------------------------------------------------------------------


@pytest.mark.parametrize("place", ["tombstone", "never"])
def test_a_deletion_cancels_the_copy_and_leaves_no_stage(place: str) -> None:
    node = begun(place, network())
    done: list[Any] = []

    def delete(_item: str) -> CopyOutcome | None:
        if not done and not node.manager._waiting:
            node.manager.delete(TABLET, "the table was dropped", done.append, seen=None)
            assert done == []
        return None

    node.network.on_chunk = delete
    changed = {"member_type": MemberType.PRE_VOTER} if place == "never" else {}
    copy = node.ask_until_end(**changed)
    assert done == [None] and not copy.sequence.committed and "the table was dropped" in copy.control.why_cancelled
    assert not node.disk.exists(LAYOUT.stage_of(TABLET))
    if place == "never":
        check_never(node)
    else:
        check_tombstone(node, VOTED)


def test_a_cancelled_copy_keeps_its_stage_for_the_next_one() -> None:
    node = CopyNode(tombstone_disk(), network())
    chunks: list[str] = []

    def cancel(item: str) -> CopyOutcome | None:
        chunks.append(item)
        if len(chunks) == 8:
            node.copies.cancel(TABLET, "by an operator")
        return None

    node.network.on_chunk = cancel
    assert not node.ask_until_end().sequence.committed
    check_tombstone(node, VOTED)
    node.network.on_chunk = lambda _item: None
    before = len(node.network.fetched)
    assert node.ask_until_end().sequence.committed
    assert (
        len(node.network.fetched)
        == before + sum(-(-len(data) // node.network.chunk_bytes) for data in SERVED.contents.values()) - before
    )
    check_complete(node, ADOPTED)


def test_nothing_else_runs_on_a_tablet_that_is_being_copied() -> None:
    node = CopyNode(tombstone_disk(), network())
    refused: list[Any] = []

    def create(_item: str) -> CopyOutcome | None:
        node.manager.create(TabletSettings(id=TABLET, schema=SCHEMA, members=()), refused.append)
        return None

    node.network.on_chunk = create
    assert node.ask_until_end().sequence.committed
    assert refused and all("is being copied" in str(error) for error in refused)


def test_a_session_is_kept_until_the_replica_hears_its_leader() -> None:
    """Rule 25: otherwise the log that follows the copy could be collected before the leader sends it."""
    node = CopyNode(tombstone_disk(), network())
    host = node._host

    def silent(recovered: Any) -> None:
        host(recovered)
        node.node.replicas[TABLET].status.serving = False

    node.node.host = silent
    node.ask()
    for _ in range(3):
        assert node.network.open == {LEADER}
        node.pass_time()
    node.node.replicas[TABLET].status.serving = True
    node.pass_time()
    assert node.network.open == set()


def test_the_last_op_id_is_kept_from_the_tombstone_to_the_end() -> None:
    """Rule 19: whatever the state, the superblock has the last op id, or a log that has reached it."""
    node = CopyNode(tombstone_disk(), network())
    seen: list[object] = []
    node.network.on_chunk = lambda _item: seen.append((node.block().data_state, node.block().tombstone))
    node.ask_until_end()
    assert set(seen) == {(DataState.COPYING, LAST)}
    assert BASE > LAST


def test_a_copied_log_has_a_generation_of_its_own() -> None:
    """Rule 22: each copy that begins, also one that was abandoned, has the next generation."""
    node = CopyNode(tombstone_disk(), network())
    node.network.on_chunk = lambda _item: (node.network.sources.clear(), LOST)[1]
    node.ask_until_end()
    assert node.block().generation == 2
    again = CopyNode(node.disk.clone(), network())
    assert again.ask_until_end().sequence.committed
    assert again.block().generation == 3
    check_complete(again, ADOPTED)


def test_an_item_that_is_damaged_in_the_stage_is_fetched_again() -> None:
    """T6: the disk lost a bit after the item had its digest."""
    node = CopyNode(tombstone_disk(), network())
    damaged: list[str] = []

    def on_chunk(item: str) -> CopyOutcome | None:
        if not damaged and item.startswith("rows/"):
            damaged.append("log/21-23")
            node.disk.damage(f"{LAYOUT.stage_of(TABLET)}/log/21-23", 40, 1)
        return None

    node.network.on_chunk = on_chunk
    assert node.ask_until_end().sequence.committed and damaged
    assert len(node.network.fetched) > CHUNKS
    check_complete(node, ADOPTED)
