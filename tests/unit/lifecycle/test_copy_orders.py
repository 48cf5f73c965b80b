"""Orders of operators about copies: pause, resume and cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from stelae.host.superblock import DataState
from stelae.lifecycle.copy_guards import CopyRefusalCode
from stelae.lifecycle.copy_orders import CopyOrders, OrderResult
from stelae.spi.errors import CallerError
from stelae.spi.ids import OpId, TabletId
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_node import ASKED, CONFIG, CopyNode, check_complete, never_disk, tombstone_disk
from tests.unit.lifecycle.disk_node import LAYOUT, OTHER, TABLET
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, network

MINUTE_US = 60_000_000
NEW: dict[str, Any] = {"member_type": MemberType.PRE_VOTER}


def refused(node: CopyNode) -> str:
    """Ask for the copy of a new member, which is refused at once; return the code."""
    assert node.ask(**NEW) is None
    return node.copies._refusals[TABLET].partition(":")[0]


class Scene:
    """A node in the middle of a copy, when its first chunks have arrived: what is done there comes back."""

    def __init__(self, do: Callable[[Scene], None], disk: Any = None) -> None:
        self.node = CopyNode(disk or tombstone_disk(), network())
        self.orders = CopyOrders(self.node.copies, self.node.node.turns)
        self.results: list[OrderResult] = []
        self._left = 3
        self._do = do
        self.node.network.on_chunk = self._on_chunk

    def _on_chunk(self, _item: str) -> None:
        self._left -= 1
        if not self._left:
            self._do(self)

    @property
    def admitted(self) -> bool:
        """Whether the copy may fetch now."""
        return self.node.copies.running[TABLET].control.admit(1) == 0

    def cancel(self, tablet: TabletId | None = TABLET) -> None:
        self.orders.cancel(tablet, MINUTE_US, self.results.append)


def test_a_paused_copy_is_admitted_nothing_until_it_is_resumed_and_then_completes() -> None:
    def do(scene: Scene) -> None:
        assert scene.admitted
        assert scene.orders.pause(TABLET, MINUTE_US) == OrderResult(changed=(TABLET,))
        assert not scene.admitted
        assert scene.orders.pause(TABLET, MINUTE_US) == OrderResult(changed=(), same=(TABLET,))
        assert scene.orders.resume(TABLET) == OrderResult(changed=(TABLET,))
        assert scene.admitted
        assert scene.orders.resume(TABLET) == OrderResult(changed=(), same=(TABLET,))

    scene = Scene(do)
    assert scene.node.ask_until_end().committed
    check_complete(scene.node, ADOPTED)


@pytest.mark.parametrize("tablet", [TABLET, None])
def test_a_pause_ends_by_itself(tablet: TabletId | None) -> None:
    def do(scene: Scene) -> None:
        scene.orders.pause(tablet, MINUTE_US)
        scene.node.pass_us(MINUTE_US - 1)
        assert not scene.admitted
        scene.node.pass_us(1)
        assert scene.admitted

    assert Scene(do).node.ask_until_end().committed


def test_a_later_and_longer_pause_replaces_an_earlier_one() -> None:
    def do(scene: Scene) -> None:
        scene.orders.pause(TABLET, MINUTE_US)
        scene.orders.pause(TABLET, 3 * MINUTE_US)
        scene.node.pass_us(2 * MINUTE_US)
        assert not scene.admitted
        scene.orders.resume(None)

    assert Scene(do).node.ask_until_end().committed


def test_a_node_whose_copies_are_paused_begins_none_and_keeps_its_source_free() -> None:
    scene = Scene(lambda _scene: None, never_disk())
    node, orders = scene.node, scene.orders
    assert orders.pause(None, MINUTE_US) == OrderResult(changed=())
    assert refused(node) == CopyRefusalCode.PAUSED
    assert node.copies.waiting[TABLET].paused and node.network.asked == [] and node.network.slots == 1
    with pytest.raises(CallerError, match="resume all of them with --all"):
        orders.resume(TABLET)
    assert orders.resume(None) == OrderResult(changed=(TABLET,))
    assert TABLET not in node.copies.waiting, "it has begun, although its leader has not asked again"
    check_complete(node, ADOPTED)


def test_a_cancelled_copy_is_a_tombstone_again_has_no_stage_and_is_refused_for_a_while() -> None:
    scene = Scene(Scene.cancel)
    node = scene.node
    copy = node.ask_until_end()
    assert scene.results == [OrderResult(changed=(TABLET,))]
    assert not copy.committed and node.block().data_state is DataState.DELETED
    assert not node.disk.exists(LAYOUT.stage_of(TABLET)), "what had arrived is removed"
    assert node.network.open == set() and node.network.slots == 1
    assert node.vote(9) is not None, "it votes as before"
    assert node.refusal() == CopyRefusalCode.CANCELLED
    assert TABLET not in node.copies.waiting, "nobody is to wait for it"
    node.pass_us(MINUTE_US)
    assert node.ask_until_end(term=9).committed
    check_complete(node, node.metadata()[0])


def test_a_cancelled_copy_begins_again_at_once_when_it_is_resumed() -> None:
    scene = Scene(Scene.cancel)
    scene.node.ask_until_end()
    scene.cancel()
    assert scene.results[1:] == [OrderResult(changed=(), same=(TABLET,))], "to cancel it again changes nothing"
    assert scene.orders.resume(None) == OrderResult(changed=(TABLET,))
    assert scene.node.ask_until_end().committed


def test_a_first_copy_that_is_cancelled_leaves_nothing() -> None:
    tree = never_disk().tree()
    scene = Scene(lambda scene: scene.cancel(None), never_disk())
    scene.node.ask_until_end(**NEW)
    assert scene.results == [OrderResult(changed=(TABLET,))]
    left = {path for path in scene.node.disk.tree() if TABLET in path.split("/")[-1]} - set(tree)
    assert left == set()


LATER = OpId(CONFIG.op_id.term, CONFIG.op_id.index + 2)
WITNESS = {"member_type": MemberType.PRE_WITNESS, "pre_witness": True, "config": LATER}


@pytest.mark.parametrize(
    ("disk", "asked", "ends"),
    [
        (never_disk, WITNESS, True),
        (never_disk, {**WITNESS, "config": CONFIG.op_id}, False),  # Of the same membership, or an earlier one.
        (never_disk, {**NEW, "config": LATER}, False),  # What was fetched for the earlier membership is what it needs.
        (tombstone_disk, WITNESS, True),  # A witness begins with its log alone over a tombstone, too.
    ],
)
def test_a_first_copy_ends_if_the_node_was_added_again_as_a_witness(
    disk: Callable[[], Any], asked: dict[str, Any], ends: bool
) -> None:
    def do(scene: Scene) -> None:
        scene.node.copies.start(msgspec.structs.replace(ASKED, **asked))

    copy = Scene(do, disk()).node.ask_until_end(**NEW)
    assert copy.committed is not ends
    assert ("added again as a PRE_WITNESS" in copy.control.why_cancelled) is ends


def test_a_paused_copy_can_be_cancelled_and_its_pause_is_over() -> None:
    def do(scene: Scene) -> None:
        scene.orders.pause(TABLET, MINUTE_US)
        scene.cancel()
        assert scene.admitted and scene.node.copies.running[TABLET].control.cancelled()

    scene = Scene(do)
    scene.node.ask_until_end()
    assert scene.results == [OrderResult(changed=(TABLET,))]


def test_a_copy_past_its_commit_point_is_not_cancelled() -> None:
    """Its replica is READY on disk. To say that it was cancelled would be wrong."""
    scene = Scene(lambda _scene: None)
    host = scene.node.node.host

    def hosting(recovered: Any, **more: Any) -> None:
        scene.cancel()
        host(recovered, **more)

    scene.node.node.host = hosting
    assert scene.node.ask_until_end().committed
    assert scene.results == [OrderResult(changed=(), complete=(TABLET,))]
    assert scene.orders.resume(None) == OrderResult(changed=()), "the bar ended with the copy"
    check_complete(scene.node, ADOPTED)


def test_orders_for_a_tablet_that_is_not_copied_are_refused() -> None:
    scene = Scene(lambda _scene: None)
    with pytest.raises(CallerError, match="no copy of tablet"):
        scene.orders.pause(OTHER, MINUTE_US)
    with pytest.raises(CallerError, match="no copy of tablet"):
        scene.cancel(OTHER)
    assert scene.orders.resume(OTHER) == OrderResult(changed=(), same=(OTHER,))
    scene.cancel(None)
    assert scene.results == [OrderResult(changed=())]


def test_a_waiting_copy_that_is_cancelled_waits_no_more_and_what_an_earlier_one_left_is_removed() -> None:
    scene = Scene(lambda _scene: None, never_disk())
    node = scene.node
    node.network.on_chunk = lambda _item: _lost(node)
    node.ask_until_end(**NEW)
    assert node.disk.exists(LAYOUT.stage_of(TABLET)), "for the next copy"
    node.network.slots = 0
    node.refusal(**NEW)
    scene.cancel()
    assert scene.results == [OrderResult(changed=(TABLET,))] and list(node.copies.waiting) == []
    assert not node.disk.exists(LAYOUT.stage_of(TABLET))


def _lost(node: CopyNode) -> None:
    if len(node.network.fetched) > 2:
        node.copies.cancel(TABLET, "the node stops")
