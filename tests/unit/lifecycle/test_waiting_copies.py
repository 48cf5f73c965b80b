"""Copies that wait for a slot: when they begin by themselves, what masters are told of them, and when they are
forgotten."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.tablet_copies import BUSY_SOURCE_US
from stelae.lifecycle.waiting_copies import SILENT_US_MAX, WAITING_MAX, WaitingCopies, WaitingCopy
from stelae.spi.copy_plan import Interruption, Partial
from stelae.spi.errors import Overloaded, StelaeError, Unavailable
from stelae.spi.ids import TabletId
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_network import FakeNetwork
from tests.unit.lifecycle.copy_node import (
    ASKED,
    FOLLOWER,
    LEADER,
    CopyNode,
    check_complete,
    lagging_disk,
    never_disk,
    served,
)
from tests.unit.lifecycle.disk_node import TABLET
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, network

NEW: dict[str, Any] = {"member_type": MemberType.PRE_VOTER}
FIRST, SECOND = TabletId("first"), TabletId("second")
BUSY = Overloaded("all slots for copies from this node are in use")


def asked(tablet: TabletId | str, **changed: Any) -> Any:
    return msgspec.structs.replace(ASKED, tablet_id=TabletId(tablet), **{**NEW, **changed})


class Begun:
    """The tablets whose copies have begun on a node, in order."""

    def __init__(self, node: CopyNode) -> None:
        self.tablets: list[TabletId] = []
        run = node.manager.run

        def noted(tablet_id: TabletId, *arguments: Any, **named: Any) -> None:
            self.tablets.append(tablet_id)
            run(tablet_id, *arguments, **named)

        node.manager.run = noted  # type: ignore[method-assign]


# -- begins by itself ------------------------------------------------------------------------------


def test_copies_that_wait_for_a_slot_begin_when_one_is_free_the_longest_waiting_first() -> None:
    node = CopyNode(never_disk(), network())
    begun = Begun(node)

    def ask_for_others(_item: str) -> None:
        if not node.copies.waiting:
            for tablet in (FIRST, SECOND, FIRST):
                node.copies.start(asked(tablet))
            assert begun.tablets == [TABLET] and list(node.copies.waiting) == [FIRST, SECOND]

    node.network.on_chunk = ask_for_others  # type: ignore[assignment]
    node.copies.start(asked(TABLET))
    node.pass_all_time()
    check_complete(node, ADOPTED)
    assert begun.tablets == [TABLET, FIRST, SECOND], "their leaders have not asked again"
    assert not node.copies.waiting and node.network.slots == 1


def test_a_replica_that_lags_waits_too_and_masters_are_not_told() -> None:
    node = CopyNode(lagging_disk(), network())
    node.network.slots = 0
    node.copies.start(asked(FIRST))
    assert node.refusal(hosted=True) == CopyRefusalCode.THROTTLED
    assert list(node.copies.waiting) == [FIRST], "it has a replica"
    begun = Begun(node)
    node.network.slots = 1
    node.copies.apply_holds()
    node.pass_all_time()
    assert begun.tablets == [FIRST, TABLET] and not node.copies.waiting


def test_all_guards_are_applied_to_a_request_that_waited() -> None:
    node = CopyNode(never_disk(), network())
    node.network.slots = 0
    assert node.refusal(**NEW, leader=LEADER) == CopyRefusalCode.THROTTLED
    node.network.slots = 1
    node.node.node_id = FOLLOWER
    node.copies.apply_holds()
    assert node.network.asked == [] and not node.copies.waiting
    assert node.copies._refusals[TABLET].startswith(CopyRefusalCode.INVALID_NAME)


@pytest.mark.parametrize("other", [BUSY, Unavailable("it does not answer")])
def test_sources_without_a_slot_are_asked_again_soon_and_the_slot_is_free_meanwhile(other: StelaeError) -> None:
    node = CopyNode(never_disk(), FakeNetwork({LEADER: BUSY, FOLLOWER: other}))
    node.copies.start(asked(TABLET))
    assert node.network.asked == [LEADER, FOLLOWER] and node.network.slots == 1
    assert list(node.copies.waiting) == [TABLET]
    node.network.sources = network().sources
    node.pass_us(BUSY_SOURCE_US - 1)
    assert len(node.network.asked) == 2
    node.pass_us(1)
    node.pass_all_time()
    check_complete(node, ADOPTED)


def test_a_source_without_a_slot_is_passed_over_for_the_next_one_at_once() -> None:
    node = CopyNode(never_disk(), FakeNetwork({LEADER: BUSY, FOLLOWER: served()}))
    node.copies.start(asked(TABLET))
    assert node.network.asked == [LEADER, FOLLOWER]
    check_complete(node, ADOPTED)


def test_a_copy_that_has_begun_keeps_its_slot_and_pauses_before_it_asks_a_source_without_one_again() -> None:
    node = CopyNode(never_disk(), network())

    def lose(_item: str) -> Partial:
        node.network.sources = {LEADER: BUSY, FOLLOWER: BUSY}
        return Partial(why=Interruption.SOURCE_LOST, reason="gone")

    node.network.on_chunk = lose
    copy = node.ask(**NEW)
    assert copy is not None and copy.begun and node.network.asked == [LEADER] and node.network.slots == 0
    for times in range(2, 4):
        node.pass_us(StageSettings().pause_ms * 1000)
        assert len(node.network.asked) == times
    node.pass_all_time()
    assert not copy.committed and not copy.sources_busy and not node.copies.waiting and node.network.slots == 1


# -- forgotten -------------------------------------------------------------------------------------


def test_a_new_member_without_a_slot_waits_and_masters_are_told_of_those_without_a_vote() -> None:
    node = CopyNode(never_disk(), network())
    node.network.slots = 0
    assert node.refusal(**NEW) == CopyRefusalCode.THROTTLED
    assert list(node.copies.waiting) == [TABLET] and not node.copies.waiting[TABLET].paused
    node.copies.forget(TABLET)
    assert node.refusal() == CopyRefusalCode.THROTTLED
    assert list(node.copies.waiting) == [], "it may have lost its replica"


def test_a_copy_waits_as_long_as_its_leader_asks_for_it() -> None:
    node = CopyNode(never_disk(), network())
    node.network.slots = 0
    for _ in range(3):
        node.refusal(**NEW)
        node.pass_us(SILENT_US_MAX // 2)
        node.copies.apply_holds()
        assert list(node.copies.waiting) == [TABLET]
    node.pass_us(SILENT_US_MAX // 2)
    assert list(node.copies.waiting) == [TABLET]
    node.pass_us(1)
    assert list(node.copies.waiting) == [], "what this node tries by itself is no request"


def test_a_node_that_stops_begins_no_copy_that_waits() -> None:
    node = CopyNode(never_disk(), FakeNetwork({LEADER: BUSY, FOLLOWER: BUSY}))
    node.copies.start(asked(TABLET))
    node.network.slots = 0
    node.copies.start(asked(FIRST))
    node.copies.stop()
    node.network.slots = 1
    node.pass_us(2 * BUSY_SOURCE_US)
    assert node.network.asked == [LEADER, FOLLOWER]


def test_the_number_of_waiting_copies_is_bounded() -> None:
    waiting = WaitingCopies()
    for number in range(WAITING_MAX + 5):
        waiting.note(WaitingCopy(asked(f"t{number}"), 0))
    assert len(waiting.new_replicas(0)) == WAITING_MAX
    assert waiting.new_replicas(SILENT_US_MAX + 1) == {}
