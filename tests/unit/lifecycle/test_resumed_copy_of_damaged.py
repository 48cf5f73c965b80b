"""A copy in place of a damaged replica that ends early: the next one fetches the missing bytes only (rule 21).

Until everything is verified, the superblock of such a replica says READY, as if no copy were under way."""

from __future__ import annotations

from typing import Any

import pytest

from stelae.host.superblock import Superblock
from stelae.lifecycle import tablet_loader
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.leftovers import NEXT_START, DirectoryState, Leftover, LeftoverKind, find_leftovers
from stelae.lifecycle.quarantine import QuarantineSettings
from stelae.sim.disk import VirtualDisk
from stelae.spi.copy_plan import CopyOutcome
from stelae.spi.errors import Corrupt, StorageError
from stelae.spi.ids import OpId
from tests.unit.lifecycle.copy_node import CopyNode, check_complete
from tests.unit.lifecycle.disk_node import LAYOUT, TABLET
from tests.unit.lifecycle.test_interrupted_copy import LOST
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, CHUNKS, damaged, network

FETCHED = 7


def interrupted() -> CopyNode:
    """A node that has fetched ``FETCHED`` chunks of the copy in place of its damaged replica, and lost its sources."""
    node = damaged()

    def on_chunk(_item: str) -> CopyOutcome | None:
        if len(node.network.fetched) < FETCHED:
            return None
        node.network.sources.clear()
        return LOST

    node.network.on_chunk = on_chunk
    copy = node.ask_until_end(hosted=True, log_base=OpId(1, 1))
    assert not copy.sequence.marked and len(node.network.fetched) == FETCHED
    assert node.disk.exists(LAYOUT.stage_of(TABLET))
    return node


def started(disk: VirtualDisk, monkeypatch: pytest.MonkeyPatch, error: StorageError | None) -> CopyNode:
    """The node after a restart. Its replica does not start because of the error, if there is one."""

    recover = tablet_loader.recover

    def recover_or_fail(block: Superblock, *arguments: Any) -> Any:
        if error is not None and block.tablet_id == TABLET:
            raise error
        return recover(block, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(tablet_loader, "recover", recover_or_fail)
        return CopyNode(disk, network())


DAMAGED = Corrupt("a bad page", path=f"{LAYOUT.data_of(TABLET)}/1.parquet", offset=4096)


def test_after_a_restart_of_the_target_only_the_missing_bytes_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start removed the stage of every replica whose superblock says READY, before it tried the replica."""
    again = started(interrupted().disk.clone(), monkeypatch, DAMAGED)
    assert again.loader.damaged == {TABLET}
    assert again.ask_until_end(hosted=False, log_base=OpId(1, 1)).sequence.committed
    assert len(again.network.fetched) == CHUNKS - FETCHED
    check_complete(again, ADOPTED)


def test_a_replica_that_starts_by_itself_keeps_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    again = started(interrupted().disk.clone(), monkeypatch, None)
    assert TABLET in again.recovered and not again.disk.exists(LAYOUT.stage_of(TABLET))


def test_the_deletion_of_a_damaged_replica_removes_the_stage_of_its_copy() -> None:
    """It stayed until it was too old, because a replica that ran had none."""
    node = interrupted()
    answers: list[Any] = []
    node.manager.delete(TABLET, "evicted", answers.append, seen=None)
    node.pass_all_time()
    assert answers == [None] and not node.disk.exists(LAYOUT.stage_of(TABLET))


def test_the_stage_of_a_ready_replica_is_said_to_serve_its_next_copy() -> None:
    """``fs check`` said that the copy was complete."""
    node = interrupted()
    (one,) = (one for one in leftovers_of(node) if one.kind is LeftoverKind.STAGE)
    assert "in place of a damaged replica" in one.why
    assert NEXT_START in one.cleaned_by and one.cleaned_us is not None


def leftovers_of(node: CopyNode) -> list[Leftover]:
    logs = node.wal.logs()
    return find_leftovers(
        DirectoryState(
            files=node.disk,
            layout=LAYOUT,
            findings={TABLET: node.loader.inspect(TABLET, logs)},
            logs=[log for log in logs if log.tablet_id == TABLET],
            stage=StageSettings(),
            quarantine=QuarantineSettings(),
        )
    )
