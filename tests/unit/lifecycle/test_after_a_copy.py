"""What a copy leaves after its member was removed, or after a start that could not end it: nothing that is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.host.new_replica import LogStart
from stelae.lifecycle import tablet_loader
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.spi.errors import StelaeError, StorageError
from stelae.spi.ids import ZERO, NodeId, OpId
from stelae.spi.members import MemberType, TabletConfig
from tests.unit.lifecycle.copy_network import Served
from tests.unit.lifecycle.copy_node import CopyNode, Killed, never_disk, tombstone_disk
from tests.unit.lifecycle.disk_node import NODE, TABLET
from tests.unit.lifecycle.test_tablet_copy import SERVED, network


def _without_this_node() -> Served:
    """A source that has committed the removal of this node since it was asked for the copy."""
    snapshot = SERVED.snapshot
    before = snapshot.committed_config
    left = tuple(member for member in before.members if member.node_id != NODE)
    later = TabletConfig(op_id=OpId(before.op_id.term, before.op_id.index + 1), members=left)
    return Served(msgspec.structs.replace(snapshot, committed_config=later), SERVED.contents)


def test_a_node_that_was_removed_meanwhile_does_not_complete_its_copy() -> None:
    """The replica would have the newest config, so no master could tell that it is left over."""
    gone = _without_this_node()
    node = CopyNode(never_disk(), network(leader=gone, follower=gone))
    copy = node.ask_until_end(member_type=MemberType.PRE_VOTER)
    assert not copy.committed and copy.reason.startswith(CopyRefusalCode.NOT_A_MEMBER)
    assert TABLET not in node.peers.replicas and len(node.network.asked) == 1, "no other source is asked"


@pytest.mark.parametrize(
    ("disk", "member_type"), [(tombstone_disk, MemberType.VOTER), (never_disk, MemberType.PRE_VOTER)]
)
def test_a_tablet_whose_interrupted_copy_could_not_be_ended_is_sound_again_after_the_next_copy(
    disk: Any, member_type: MemberType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was reported as FAILED until a restart, although its replica ran."""
    again = _after_a_start_that_could_not_end(disk(), member_type, monkeypatch)
    assert again.loader.failed
    assert again.ask_until_end(member_type=member_type).committed
    assert TABLET in again.peers.replicas and not again.loader.failed and not again.loader.failed_configs


def test_a_witness_begins_where_a_first_copy_could_not_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    again = _after_a_start_that_could_not_end(never_disk(), MemberType.PRE_VOTER, monkeypatch)
    ended: list[StelaeError | None] = []
    nothing, leader = TabletConfig(op_id=ZERO, members=()), NodeId("b" * 32)
    begins = LogStart(base=OpId(3, 20), committed=nothing, leader=leader, term=3, had_vote=False)
    again.begin_witness(begins, ended.append)
    assert ended == [None] and again.recovered[TABLET].superblock.log_only and not again.loader.failed


def _after_a_start_that_could_not_end(disk: Any, member_type: MemberType, monkeypatch: pytest.MonkeyPatch) -> CopyNode:
    """A node that was killed during a copy, and whose disk failed for a moment when it started."""

    def killed(_item: str) -> None:
        raise Killed

    def fails(*_args: Any, **_kwargs: Any) -> Any:
        raise StorageError("input/output error", path="")
        yield

    node = CopyNode(disk, network())
    node.network.on_chunk = killed
    with pytest.raises(Killed):
        node.ask_until_end(member_type=member_type)
    with monkeypatch.context() as patched:
        patched.setattr(tablet_loader, "abandon_copy", fails)
        return CopyNode(node.disk.clone(), network())
