"""A copy that is cancelled while it reads its stage, or imports the rows: it ends there, and not when that is complete.

For a large tablet both take many minutes, for which a cancellation, a deletion and the stop of a node waited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from stelae.lifecycle import copy_install, copy_stage
from stelae.lifecycle.copy_cancelled import unless_cancelled
from stelae.lifecycle.copy_states import CopyPhase
from stelae.spi.copy_plan import CopyOutcome
from stelae.spi.ids import OpId
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_node import CopyNode, FakeNetwork, check_complete, check_never, check_tombstone, served
from tests.unit.lifecycle.disk_node import LAYOUT, TABLET
from tests.unit.lifecycle.test_rows_copy import ask, state, witness, witness_disk
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, EXPORTED, VOTED, begun, damaged, lagging, network

WHY = "an operator cancelled the copy"


class CancelsAtFirst:
    """Cancels the copy of a node when a piece of its work gets its first item, and counts what it gets."""

    def __init__(self, node: CopyNode) -> None:
        self._node = node
        self.items = 0
        self.phases: list[CopyPhase] = []

    def __call__(self, items: Iterable[Any], cancelled: Callable[[], bool]) -> Iterator[Any]:
        return unless_cancelled(self._counted(items), cancelled)

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.items += 1
            self.phases.append(self._node.copies.running[TABLET].phase)
            self._node.copies.cancel(TABLET, WHY)
            yield item


WORKS = [(copy_stage, CopyPhase.VERIFYING), (copy_install, CopyPhase.INSTALLING)]
IDS = ["verification", "import"]


@pytest.mark.parametrize(("module", "phase"), WORKS, ids=IDS)
@pytest.mark.parametrize("place", ["tombstone", "lagging", "never"])
def test_a_copy_that_is_cancelled_ends_at_the_next_piece_as_a_tombstone_that_keeps_its_stage(
    monkeypatch: pytest.MonkeyPatch, module: Any, phase: CopyPhase, place: str
) -> None:
    node = begun(place, network(EXPORTED))
    changed = {"member_type": MemberType.PRE_VOTER} if place == "never" else {"hosted": place == "lagging"}
    seen = CancelsAtFirst(node)
    with monkeypatch.context() as patched:
        patched.setattr(module, "unless_cancelled", seen)
        copy = node.ask_until_end(**changed)
    assert seen.items == 1 and seen.phases == [phase]
    assert not copy.sequence.committed and copy.reason == WHY and copy.phase is CopyPhase.ENDING
    if place == "never":
        check_never(node)
    elif place == "tombstone":
        check_tombstone(node, VOTED)
    fetched = len(node.network.fetched)
    again = CopyNode(node.disk.clone(), network(EXPORTED))
    assert again.ask_until_end(**{**changed, "hosted": False}).sequence.committed
    assert fetched > 0 and again.network.fetched == [], "what has arrived was kept"
    check_complete(again, ADOPTED)


def test_a_damaged_replica_whose_copy_is_cancelled_while_it_is_verified_stays_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = damaged()
    tree = node.disk.tree()
    seen = CancelsAtFirst(node)
    with monkeypatch.context() as patched:
        patched.setattr(copy_stage, "unless_cancelled", seen)
        copy = node.ask_until_end(hosted=True, log_base=OpId(1, 1))
    assert seen.items == 1 and copy.reason == WHY and not copy.sequence.marked
    stage = f"{LAYOUT.stage_of(TABLET)}/"
    assert {path: data for path, data in node.disk.tree().items() if not path.startswith(stage)} == tree


@pytest.mark.parametrize(("module", "phase"), WORKS, ids=IDS)
def test_a_witness_whose_copy_of_the_rows_is_cancelled_stays_one(
    monkeypatch: pytest.MonkeyPatch, module: Any, phase: CopyPhase
) -> None:
    export = served(export=True)
    node = witness(witness_disk(), FakeNetwork(dict.fromkeys(network().sources, export)))
    seen = CancelsAtFirst(node)
    with monkeypatch.context() as patched:
        patched.setattr(module, "unless_cancelled", seen)
        copy = ask(node)
    assert seen.items == 1 and seen.phases == [phase]
    assert copy.reason == WHY and not copy.committed and state(node.disk) == "witness"
    assert ask(node).committed and state(node.disk) == "complete"


def test_each_phase_of_a_copy_is_shown_in_its_order() -> None:
    node = lagging()
    shown: list[CopyPhase] = []
    look = copy_phase_of(node, shown)

    def on_chunk(_item: str) -> CopyOutcome | None:
        look()
        return None

    node.network.on_chunk = on_chunk
    node.disk.faults.hook = lambda _operation, _path: look()
    assert node.ask_until_end(hosted=True).sequence.committed
    assert [phase for phase, after in zip(shown, [*shown[1:], None], strict=True) if phase is not after] == [
        CopyPhase.PREPARING,
        CopyPhase.FETCHING,
        CopyPhase.INSTALLING,
    ], "verification changes nothing on the disk"


def copy_phase_of(node: CopyNode, shown: list[CopyPhase]) -> Callable[[], None]:
    def look() -> None:
        if (copy := node.copies.running.get(TABLET)) is not None:
            shown.append(copy.phase)

    return look
