"""Deletions and creations remove what copies left, which may be large, in the pool for scans, not in that of votes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.host.settings import TabletSettings
from stelae.spi.copy_plan import CopyOutcome
from stelae.spi.errors import StorageError
from stelae.spi.members import MemberType
from tests.unit.lifecycle.copy_node import CopyNode
from tests.unit.lifecycle.disk_node import LAYOUT, SCHEMA, TABLET
from tests.unit.lifecycle.test_interrupted_copy import LOST
from tests.unit.lifecycle.test_tablet_copy import begun, network

OF_COPIES = (f"{LAYOUT.stage_of(TABLET)}/", LAYOUT.data_of(TABLET))


def removing_in(node: CopyNode, *places: str) -> set[str]:
    """The pools in which files in certain places are removed from now on: those of copies, if none is given."""
    pools, running = set[str](), ["loop"]

    def pool(name: str) -> Any:
        def run(key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
            def named() -> Any:
                running.append(name)
                try:
                    return work()
                finally:
                    running.pop()

            node.run(key, named, done)

        return SimpleNamespace(run=run)

    def hook(operation: str, path: str) -> None:
        if operation.startswith("remove") and path.startswith(places or OF_COPIES):
            pools.add(running[-1])

    node.node.scans, node.node.copies, node.node.metadata_pool = pool("scans"), pool("copies"), pool("metadata")
    node.disk.faults.hook = hook
    return pools


def interrupted(place: str) -> CopyNode:
    """A node whose copy was cut short, and not undone: the disk has failed at that, too."""
    node = begun(place, network())

    def lose(_item: str) -> CopyOutcome | None:
        if not node.disk.listdir(f"{LAYOUT.stage_of(TABLET)}/log"):
            return None
        node.network.sources.clear()
        return LOST

    def fails(operation: str, path: str) -> None:
        if operation == "sync_directory" and path == LAYOUT.data:
            raise StorageError("input/output error", path=path)

    node.network.on_chunk = lose
    node.disk.faults.hook = fails
    node.ask_until_end(member_type=MemberType.PRE_VOTER if place == "never" else MemberType.VOTER)
    assert node.block().data_state == "COPYING" and node.disk.exists(LAYOUT.stage_of(TABLET))
    return node


@pytest.mark.parametrize("place", ["tombstone", "never"])
def test_a_deletion_removes_an_interrupted_copy_in_the_pool_for_scans(place: str) -> None:
    """The votes of all tablets of the node waited until the stage was removed."""
    node = interrupted(place)
    pools, answers = removing_in(node), list[Any]()
    node.manager.delete(TABLET, "dropped", answers.append, seen=None)
    assert answers == [None] and not node.disk.exists(LAYOUT.stage_of(TABLET))
    assert pools == {"scans"}


def test_a_creation_removes_the_rows_of_an_interrupted_copy_in_the_pool_for_scans() -> None:
    node = interrupted("never")
    node.disk.make_directory(LAYOUT.data_of(TABLET))
    node.disk.replace(f"{LAYOUT.data_of(TABLET)}/1.rows", b"rows")
    pools, answers = removing_in(node), list[Any]()
    node.manager.create(TabletSettings(id=TABLET, schema=SCHEMA, members=()), answers.append)
    assert len(answers) == 1 and not node.disk.exists(f"{LAYOUT.data_of(TABLET)}/1.rows")
    assert pools == {"scans"}
