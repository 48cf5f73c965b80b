"""Copies whose source does not answer, when a leader of a later term asks for the copy, or when it is cancelled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.spi.errors import Overloaded
from stelae.spi.members import MemberType
from stelae.spi.recovery_epoch import EPOCH_BITS, EPOCHS_AHEAD_MAX
from tests.unit.lifecycle.copy_node import ASKED, FOLLOWER, LEADER, SOURCES, TERM, CopyNode, check_complete, never_disk
from tests.unit.lifecycle.disk_node import TABLET
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, network

OLD_LEADER, NEW_LEADER = (tuple(one for one in SOURCES if one.node_id == node) for node in (LEADER, FOLLOWER))


def asked(**changed: Any) -> Any:
    return msgspec.structs.replace(ASKED, member_type=MemberType.PRE_VOTER, **changed)


@pytest.fixture
def node() -> CopyNode:
    """A node whose copy waits for the answer of a source that is gone."""
    found = CopyNode(never_disk(), network())
    found.network.silent = {LEADER}
    found.copies.start(asked(sources=OLD_LEADER))
    found.pass_time()
    assert list(found.copies.running) == [TABLET] and found.network.asked == [LEADER]
    return found


def asked_by_the_new_leader(term: int = TERM + 1) -> Any:
    return asked(leader=FOLLOWER, term=term, sources=NEW_LEADER)


def test_a_copy_gives_up_a_source_that_is_gone_when_a_newer_leader_asks_whose_request_then_begins(
    node: CopyNode,
) -> None:
    """It held the tablet for five minutes. The new leader had no majority without the replica."""
    node.copies.start(asked_by_the_new_leader())
    assert list(node.copies.running) == [TABLET], "the source may still answer in time"
    node.network.let_deadlines_pass()
    assert not node.copies.running and node.network.slots == 1
    node.copies.start(asked_by_the_new_leader())
    node.pass_all_time()
    assert node.network.asked == [LEADER, FOLLOWER]
    check_complete(node, ADOPTED)


@pytest.mark.parametrize("term", [TERM, TERM - 1, TERM + (EPOCHS_AHEAD_MAX + 1 << EPOCH_BITS)])
def test_no_other_term_ends_the_wait(node: CopyNode, term: int) -> None:
    node.copies.start(asked_by_the_new_leader(term=term))
    node.network.let_deadlines_pass()
    assert list(node.copies.running) == [TABLET] and node.network.asked == [LEADER, LEADER]


def test_a_source_that_is_busy_is_not_asked_again_for_a_leader_that_is_replaced(node: CopyNode) -> None:
    """Its request waited, and began again before that of the new leader came."""
    node.copies.start(asked_by_the_new_leader())
    node.network.let_deadlines_pass(Overloaded("the snapshot is still being taken"))
    node.pass_all_time()
    assert not node.copies.running and node.network.asked == [LEADER]


def test_a_copy_that_is_cancelled_waits_for_no_further_answer(node: CopyNode) -> None:
    node.copies.cancel(TABLET, "an operator cancelled it")
    node.network.let_deadlines_pass()
    assert not node.copies.running and node.network.asked == [LEADER]
