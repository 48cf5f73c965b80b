"""A replica without rows copies them while it votes: all of them or none (t=5 of the appendix, rules 12 and 22)."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stelae.host.consensus_metadata import ConsensusMetadata
from stelae.host.log_retention import LogRetentionLimit
from stelae.host.new_replica import LogStart
from stelae.host.start_copy import CancelCopy
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.lifecycle import rows_copy
from stelae.lifecycle.copy_facts import CopyFacts
from stelae.lifecycle.copy_stage import read_manifest
from stelae.lifecycle.log_only_creation import LogOnlyCreation
from stelae.lifecycle.rows_copy import RowsCopy
from stelae.sim.disk import VirtualDisk
from stelae.sim.disk_faults import PowerLost
from stelae.spi.consensus import HardState
from stelae.spi.copy_plan import CopyOutcome, Interruption, Partial
from stelae.spi.errors import Full, StelaeError, SyncFailed
from stelae.spi.ids import ZERO, LogId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig, encode_config
from stelae.spi.wal import Append
from tests.unit.lifecycle.copy_node import (
    BASE,
    CONFIG,
    END,
    FOLLOWER,
    LEADER,
    CopyNode,
    FakeNetwork,
    KillAt,
    Killed,
    Served,
    check_others,
    served,
)
from tests.unit.lifecycle.disk_node import LAYOUT, NODE, OTHER, SCHEMA, TABLET, DiskNode, ids, row
from tests.unit.lifecycle.test_interrupted_copy import interrupting

VOTED = HardState(6, NODE)
BEGIN = OpId(3, 18)
FILES, EXPORT = served(), served(export=True)
NO_CONFIG = TabletConfig(op_id=ZERO, members=())
ALL_IDS = [number for number in range(1, 27) if number != 22]
"""Entry 22 is a config."""


def witness_disk(begin: OpId = BEGIN) -> VirtualDisk:
    """A node with a replica without rows: its log has the entries after ``begin``, up to 5.26."""
    node = DiskNode.with_rows(OTHER)
    block = Superblock(tablet_id=TABLET, store_engine="durable", schemas=(SCHEMA.to_bytes(),), table_name="the table")
    start = LogStart(base=begin, committed=NO_CONFIG, leader=LEADER, term=begin.term, had_vote=False)
    creation = LogOnlyCreation(node.disk, LAYOUT, block, start)
    creation.begin()
    creation.create_log(node.wal)
    creation.save_metadata()
    creation.finish()
    ConsensusMetadata(node.disk, LAYOUT, TABLET).save(VOTED, NO_CONFIG)
    config = Entry(OpId(4, 22), EntryKind.CONFIG, 22 << 12, encode_config(CONFIG))
    terms = {19: 3, 20: 3, 21: 4, 23: 4, 24: 5, 25: 5, 26: 5}
    entries = [config if index == 22 else row(index, terms[index]) for index in range(begin.index + 1, 27)]
    node.wal.commit({LogId(TABLET, 1): Append(entries=tuple(entries), commit_hint=26)}, sync=True)
    return node.disk.clone()


def witness(disk: VirtualDisk, network: FakeNetwork | None = None, crash: KillAt | None = None) -> CopyNode:
    node = CopyNode(disk, network or FakeNetwork({LEADER: FILES, FOLLOWER: FILES}), crash)
    one = node.recovered.get(TABLET)
    if one is not None and one.superblock.log_only:
        replica = node.add_replica(TABLET, one.superblock, one.consensus)
        replica.log_only = True
        replica.applier = SimpleNamespace(applied=one.applied)
        replica.flusher.log_base = one.log.base
        replica.flusher.retention = LogRetentionLimit(one.superblock.flushed.index, 0, one.log.base.index)
    return node


def ask(node: CopyNode, **changed: Any) -> RowsCopy:
    copy = node.ask(rows_only=True, hosted=True, **changed)
    assert isinstance(copy, RowsCopy)
    node.pass_all_time()
    return copy


def state(disk: VirtualDisk) -> str:
    """Start anew, and return what the replica is. Nothing that it promised may be lost."""
    node = CopyNode(disk.clone(), FakeNetwork({}))
    assert not node.loader.failed, node.loader.failed
    one = node.recovered[TABLET]
    assert one.consensus.hard_state == VOTED and one.log.last == END
    check_others(node)
    if one.superblock.log_only:
        return "witness"
    assert ids(one) == ALL_IDS, "the rows of the source, and those of the log after them"
    assert one.superblock.flushed == BASE and not node.disk.exists(LAYOUT.stage_of(TABLET))
    return "complete"


@pytest.mark.parametrize("what", [FILES, EXPORT], ids=["files", "export"])
def test_a_witness_gets_its_rows_and_keeps_its_log_and_its_vote(what: Served) -> None:
    node = witness(witness_disk(), FakeNetwork({LEADER: what}))
    replica = node.peers.replicas[TABLET]
    copy = ask(node)
    assert copy.committed and copy.reason == ""
    assert not node.disk.exists(LAYOUT.stage_of(TABLET))
    assert state(node.disk) == "complete"
    assert node.hosted[TABLET].hard_state == VOTED and ids(node.recovered[TABLET]) == ALL_IDS
    assert node.network.slots == 1 and node.network.open == set()
    assert "log/" not in "".join(node.network.fetched), "it has the log"
    assert replica.flusher.retention.collectable() > BEGIN.index or not replica.flusher.retention._anchors


def test_rows_that_end_before_the_log_begins_are_asked_for_as_of_now() -> None:
    node = witness(witness_disk(OpId(3, 20)))
    old = FILES.changed(base=OpId(3, 19), facts=_as_of(FILES, OpId(3, 19)))
    node.network.sources = {LEADER: old}
    node.network.exported = EXPORT
    assert ask(node).committed
    assert node.network.as_export == [False, True] and state(node.disk) == "complete"


def _as_of(what: Served, flushed: OpId) -> bytes:
    return msgspec.structs.replace(CopyFacts.from_bytes(what.snapshot.facts), flushed=flushed).to_bytes()


POINTS = [
    "copy.after_stage_cleaned",
    "copy-stage.before_replace",
    "copy-stage.after_replace",
    "copy.after_chunk",
    "copy.after_item",
    "rows.after_verified",
    "copy.after_rows",
    "rows.after_stopped",
    "superblock.before_replace",
    "superblock.after_replace",
    "rows.after_committed",
]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("what", [FILES, EXPORT], ids=["files", "export"])
def test_a_kill_at_any_step_leaves_a_witness_or_a_whole_replica_and_the_next_copy_succeeds(
    what: Served, point: str
) -> None:
    crash = KillAt(point)
    node = witness(witness_disk(), FakeNetwork({LEADER: what}), crash)
    with suppress(Killed):
        ask(node)
    assert point in crash.passed
    disk = node.disk.clone()
    if point in ("superblock.after_replace", "rows.after_committed"):
        again = CopyNode(disk, FakeNetwork({}))
        assert ids(again.recovered[TABLET]) == ALL_IDS and again.recovered[TABLET].consensus.hard_state == VOTED
        assert state(disk) == "complete", "the start has removed the stage"
        return
    assert state(disk) == "witness"
    second = witness(disk, FakeNetwork({LEADER: what}))
    assert ask(second).committed and state(second.disk) == "complete"


def interrupted_disk(point: str) -> VirtualDisk:
    """A witness whose process ended at a point of a copy; it has not started again."""
    node = witness(witness_disk(), crash=KillAt(point))
    with suppress(Killed):
        ask(node)
    return node.disk.clone()


STARTS: dict[str, Callable[[], VirtualDisk]] = {
    "no copy before": witness_disk,
    "a stage": lambda: interrupted_disk("copy.after_item"),
    "installed rows": lambda: interrupted_disk("rows.after_stopped"),
    "rows, and a stage": lambda: interrupted_disk("superblock.after_replace"),
}


def after_power_loss(disk: VirtualDisk, what: Served) -> str:
    """Start, check that the replica is whole, and copy its rows if it has none. Return what it was."""
    was = state(disk)
    second = witness(disk, FakeNetwork({LEADER: what, FOLLOWER: what}))
    if was == "witness":
        intact = read_manifest(disk, LAYOUT, TABLET) is not None
        assert intact or not disk.exists(LAYOUT.stage_of(TABLET)), "no orphan files"
        assert disk.exists(LAYOUT.data_of(TABLET)) is False, "no rows of which the superblock does not know"
        # An item that had arrived in part may have lost bytes. Its digest shows that, and it is fetched anew, from
        # another source: the copy cannot know that the first one is not to blame.
        copy = ask(second)
        assert copy.committed, copy.reason
    assert state(second.disk) == "complete"
    return was


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("what", [FILES, EXPORT], ids=["files", "export"])
def test_power_lost_at_any_operation_of_start_and_copy_leaves_a_witness_or_a_whole_replica(
    what: Served, start: str
) -> None:
    def run(number: int | None) -> VirtualDisk:
        disk = STARTS[start]()
        before = disk.faults.operations
        if number is not None:
            disk.faults.lose_power_after(operations=number)
        with suppress(PowerLost):
            node = witness(disk, FakeNetwork({LEADER: what}))
            if node.recovered[TABLET].superblock.log_only:
                assert ask(node).committed
        operations.append(disk.faults.operations - before)
        return disk

    operations: list[int] = []
    assert state(run(None)) == "complete"
    seen = set()
    for number in range(1, operations[0] + 1):
        # What of the writes since the last sync is lost depends on the seed.
        seen.add(after_power_loss(run(number).crash(random.Random(number)), what))
    ready = start == "rows, and a stage"
    assert operations[0] > (2 if ready else 20) and seen == ({"complete"} if ready else {"witness", "complete"})


@pytest.mark.parametrize(("point", "operations"), [("rows.after_verified", 1), ("copy.after_rows", 3)])
def test_power_lost_while_rows_are_put_back_leaves_a_witness(point: str, operations: int) -> None:
    """The copy is cancelled before or after rows are installed. Then they go back to the stage, and the power is lost
    meanwhile."""

    class CancelAt(KillAt):
        def hit(self, name: str) -> None:
            self.passed.append(name)
            if name == point:
                node.copies.cancelled_by_leader(CancelCopy(tablet_id=TABLET, term=6, why="node c is back"))
                if number:
                    node.disk.faults.lose_power_after(operations=number)

    for number in range(200):
        node = witness(witness_disk(), crash=CancelAt())
        with suppress(PowerLost):
            assert not ask(node).committed
        powered = node.disk.faults.powered
        assert after_power_loss(node.disk.crash(random.Random(number)), FILES) == "witness"
        if number and powered:
            assert number >= operations
            return
    raise AssertionError("the way back does not end")


@pytest.mark.parametrize("begun", [False, True], ids=["no copy before", "a stage"])
def test_a_start_of_a_witness_of_which_no_rows_are_left_changes_and_syncs_nothing(*, begun: bool) -> None:
    disk = interrupted_disk("copy.after_item") if begun else witness_disk()
    changes: list[tuple[str, str]] = []
    node = DiskNode(disk)
    disk.faults.hook = lambda operation, path: changes.append((operation, path))
    assert node.recovered()[TABLET].superblock.log_only and changes == []


def test_a_copy_goes_on_with_what_is_in_the_stage() -> None:
    crash = KillAt("copy.after_item")
    node = witness(witness_disk(), crash=crash)
    with suppress(Killed):
        ask(node)
    assert state(node.disk) == "witness"
    second = witness(node.disk.clone())
    assert ask(second).committed and second.network.fetched == [], "the only file of rows was complete"


# -- sources ---------------------------------------------------------------------------------------

SPOILED = Served(FILES.snapshot, {name: data[:-1] + bytes([data[-1] ^ 1]) for name, data in FILES.contents.items()})
CHUNKS = sum(-(-len(d) // FakeNetwork({}).chunk_bytes) for n, d in FILES.contents.items() if n.startswith("rows/"))


def test_a_source_with_damaged_bytes_is_passed_over() -> None:
    """Every copy began at that source again, and the witness never got its rows."""
    node = witness(witness_disk(), FakeNetwork({LEADER: SPOILED, FOLLOWER: FILES}))
    assert ask(node).committed
    assert node.network.asked == [LEADER, FOLLOWER] and node.network.open == set()
    assert state(node.disk) == "complete"


def test_if_all_sources_are_damaged_people_are_told_what_to_do_in_one_sentence() -> None:
    node = witness(witness_disk(), FakeNetwork({LEADER: SPOILED, FOLLOWER: SPOILED}))
    copy = ask(node)
    assert (
        copy.reason == "the bytes of every source are damaged; run stelae check, and restore the tablet from a backup"
    )
    assert node.network.asked == [LEADER, FOLLOWER] and state(node.disk) == "witness"


@pytest.mark.parametrize("why", [Interruption.SOURCE_LOST, Interruption.SESSION_ENDED])
def test_an_interrupted_copy_goes_on_at_the_same_source_with_what_it_has(why: Interruption) -> None:
    node = witness(witness_disk())
    lose = interrupting(2, Partial(why=why, reason="no answer"), times=2)
    node.network.on_chunk = lose
    assert ask(node).committed and set(node.network.asked) == {LEADER}
    assert len(node.network.fetched) == CHUNKS > 2, "nothing was fetched twice"
    assert state(node.disk) == "complete"


def test_a_source_that_is_gone_is_replaced_and_nothing_is_fetched_again() -> None:
    node = witness(witness_disk())
    lose = interrupting(2, Partial(why=Interruption.SOURCE_LOST, reason="no answer"))

    def on_chunk(item: str) -> CopyOutcome | None:
        if (ends := lose(item)) is not None:
            node.network.sources.pop(LEADER)
        return ends

    node.network.on_chunk = on_chunk
    assert ask(node).committed and node.network.asked == [LEADER, LEADER, FOLLOWER]
    assert len(node.network.fetched) == CHUNKS and node.network.open == set()


def test_a_copy_that_gets_nothing_ends_with_the_last_reason_and_the_next_step() -> None:
    node = witness(witness_disk())
    node.network.on_chunk = lambda _item: Partial(why=Interruption.SOURCE_LOST, reason="no answer")
    copy = ask(node)
    assert copy.reason == "SOURCE_LOST: no answer; the copy goes on with what has arrived when a source answers"
    assert state(node.disk) == "witness" and node.network.open == set()


def test_facts_that_the_server_does_not_understand_make_it_ask_another_source() -> None:
    node = witness(witness_disk())
    seen: list[CopyFacts] = []

    def refuse_the_first(facts: CopyFacts) -> None:
        seen.append(facts)
        if len(seen) == 1:
            raise StelaeError("no such partition scheme")

    node.copies._env = dataclasses.replace(node.copies._env, check_facts=refuse_the_first)
    assert ask(node).committed and node.network.asked == [LEADER, FOLLOWER]


def test_an_export_that_was_interrupted_goes_on_as_an_export() -> None:
    node = witness(witness_disk(OpId(3, 20)))
    node.network.sources = {LEADER: FILES.changed(base=OpId(3, 19), facts=_as_of(FILES, OpId(3, 19)))}
    node.network.exported = EXPORT
    node.network.on_chunk = interrupting(2, Partial(why=Interruption.SOURCE_LOST, reason="no answer"))
    assert ask(node).committed and node.network.as_export == [False, True, True]


# -- what does not begin, or ends early, changes nothing -------------------------------------------


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"term": 5}, "the leader is of term 5, and this replica knows term 6"),
        ({"tablet_id": OTHER}, "no running replica without rows"),
        ({"sources": ()}, "no source was named"),
    ],
)
def test_a_request_that_is_refused_changes_no_byte(changed: dict[str, Any], why: str) -> None:
    node = witness(witness_disk())
    tree = node.disk.tree()
    copy = ask(node, **changed)
    assert why in copy.reason and not copy.begun
    assert node.disk.tree() == tree and node.network.slots == 1


def test_without_a_free_slot_the_leader_asks_again() -> None:
    node = witness(witness_disk())
    node.network.slots = 0
    assert node.ask(rows_only=True, hosted=True) is None
    node.network.slots = 1
    assert ask(node).committed


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"base": OpId(5, 27), "last": OpId(5, 27)}, "SOURCE_INCONSISTENT"),
        ({"tablet_id": OTHER}, "SOURCE_INCONSISTENT"),
        ({"term": 4}, "SOURCE_INCONSISTENT"),
    ],
)
def test_a_snapshot_that_cannot_be_of_this_replica_is_not_used(changed: dict[str, Any], why: str) -> None:
    node = witness(witness_disk(), FakeNetwork(dict.fromkeys((LEADER, FOLLOWER), FILES.changed(**changed))))
    copy = ask(node)
    assert why in copy.reason and not copy.committed and node.network.open == set()
    assert state(node.disk) == "witness"


def test_a_copy_that_its_leader_cancels_leaves_the_witness_as_it_was() -> None:
    node = witness(witness_disk())

    def cancel(_item: str) -> CopyOutcome | None:
        node.copies.cancelled_by_leader(CancelCopy(tablet_id=TABLET, term=6, why="node c is back"))
        return None

    node.network.on_chunk = cancel
    copy = ask(node)
    assert copy.reason == "node c is back" and not copy.committed
    assert state(node.disk) == "witness" and node.network.open == set()


def test_an_old_leader_cancels_nothing() -> None:
    node = witness(witness_disk())

    def cancel(_item: str) -> CopyOutcome | None:
        node.copies.cancelled_by_leader(CancelCopy(tablet_id=TABLET, term=5, why="old"))
        return None

    node.network.on_chunk = cancel
    assert ask(node).committed


# -- a replica that has failed does not run again in this process (rule 7) -------------------------


def test_a_replica_that_fails_while_its_rows_arrive_is_not_started_again() -> None:
    node = witness(witness_disk())
    replica = node.peers.replicas[TABLET]

    def fail(_item: str) -> CopyOutcome | None:
        replica.failure = "the log cannot be synced"
        return None

    node.network.on_chunk = fail
    copy = ask(node)
    assert "the log cannot be synced" in copy.reason and not copy.committed
    assert node.hosted == {} and node.peers.replicas[TABLET] is replica and replica.failure
    assert state(node.disk) == "witness"


def test_a_replica_that_fails_while_it_is_stopped_is_offline_until_a_restart() -> None:
    node = witness(witness_disk())
    replica, shut_down = node.peers.replicas[TABLET], node.manager.shut_down

    def failing(stopped: Any) -> Any:
        last = yield from shut_down(stopped)
        replica.failure = "the vote cannot be saved"
        return last

    node.manager.shut_down = failing  # type: ignore[method-assign]
    copy = ask(node)
    assert not copy.committed and node.hosted == {}
    assert "the vote cannot be saved" in node.loader.failed[TABLET] and "restart the node" in node.loader.failed[TABLET]
    assert state(node.disk) == "witness"


@pytest.mark.parametrize(("error", "starts"), [(SyncFailed, False), (Full, True)])
def test_a_replica_whose_superblock_may_not_be_durable_is_offline_until_a_restart(
    monkeypatch: pytest.MonkeyPatch, error: type[StelaeError], *, starts: bool
) -> None:
    node = witness(witness_disk())

    def fail(_file: SuperblockFile, _block: Superblock) -> None:
        raise error("it is not known what the file says")

    monkeypatch.setattr(rows_copy.SuperblockFile, "save", fail)
    assert not ask(node).committed
    assert (TABLET in node.hosted) == starts and (TABLET in node.loader.failed) != starts


def test_rows_that_the_log_does_not_continue_are_never_taken() -> None:
    node = witness(witness_disk())
    before = _check_at_the_end(node)
    copy = ask(node)
    assert "is not in the log of this replica" in copy.reason and not copy.committed
    assert before() == "witness"


def test_without_the_last_check_a_replica_would_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_copy, "_check_log", lambda wal, block, flushed: None)
    node = witness(witness_disk())
    _check_at_the_end(node)
    ask(node)
    again = CopyNode(node.disk.clone(), FakeNetwork({}))
    assert TABLET in again.loader.failed and TABLET in again.loader.unknown_op_ids


def _check_at_the_end(node: CopyNode) -> Callable[[], str]:
    """Change the log while the rows arrive, as a defect might. Return what looks at the disk afterwards."""
    changed: list[bool] = []

    def change(_item: str) -> CopyOutcome | None:
        if not changed:
            changed.append(True)
            entries = tuple(row(index, 4) for index in range(20, 26))
            node.wal.commit({LogId(TABLET, 1): Append(entries=entries, replace_from=20)}, sync=True)
        return None

    node.network.on_chunk = change

    def look() -> str:
        found = CopyNode(node.disk.clone(), FakeNetwork({}))
        return "witness" if found.recovered[TABLET].superblock.log_only else "complete"

    return look
