"""The keeper of the stages: it removes under the lock of the tablet, and never what a copy uses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from stelae.host.hybrid_clock import timestamp
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.copy_stage import CopyStage
from stelae.server.tserver.stage_keeper import StageKeeper
from stelae.sim.disk import VirtualDisk
from stelae.spi.errors import StorageError, Unavailable
from stelae.spi.ids import TabletId
from tests.unit.lifecycle.disk_node import LAYOUT
from tests.unit.lifecycle.test_copy_stage import TABLET, disk, snapshot

NOW_S = 1_000_000


class World:
    """A node with one stage. Its manager runs what it is asked to run, unless the tablet is ``locked``."""

    def __init__(self, age_s: int) -> None:
        self.disk: VirtualDisk = disk()
        CopyStage(self.disk, LAYOUT, TABLET, 1 << 30).prepare(snapshot(), (NOW_S - age_s) * 1_000_000)
        self.copies: dict[TabletId, object] = {}
        self.locked: set[TabletId] = set()
        self.replicas: dict[TabletId, Any] = {}
        self.turns = MagicMock()
        self.turns.now_us.return_value = 0
        node: Any = SimpleNamespace(
            config=SimpleNamespace(extra={"stage": StageSettings(age_s_max=100, free_bytes_min=0)}),
            turns=self.turns,
            files=self.disk,
            layout=LAYOUT,
            replicas=self.replicas,
            scans=SimpleNamespace(run=self._run),
            time=SimpleNamespace(last=timestamp(NOW_S * 1_000_000)),
        )
        copies: Any = SimpleNamespace(stages_in_use=self.copies)
        self.keeper = StageKeeper(node, self, copies)  # type: ignore[arg-type]
        self.keeper.start()

    def _run(self, _key: str, work: Any, done: Any) -> None:
        try:
            result = work()
        except StorageError as error:
            result = error
        done(result)

    def run(self, tablet_id: TabletId, what: str, steps: Any, done: Any, *, pool: Any) -> None:
        if tablet_id in self.locked:
            done(Unavailable("it is being copied"))
            return
        for step in steps:
            step.work()
        done(None)

    def look(self) -> bool:
        """Let the timer fire; return whether the stage is still there."""
        self.turns.call_at.call_args.args[1]()
        return self.disk.exists(LAYOUT.stage_of(TABLET))


def test_a_stage_is_removed_when_it_is_too_old() -> None:
    assert World(age_s=100).look()
    assert not World(age_s=101).look()


def test_a_stage_that_is_in_use_or_locked_stays(caplog: pytest.LogCaptureFixture) -> None:
    world = World(age_s=1000)
    world.copies[TABLET] = object()
    assert world.look()
    world.copies.clear()
    world.locked.add(TABLET)
    assert world.look() and "it is being copied" in caplog.text
    world.locked.clear()
    assert not world.look()


def test_a_disk_that_cannot_be_read_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World(age_s=1000)
    read = world.disk.space_left
    world.disk.space_left = MagicMock(side_effect=StorageError("input/output error"))  # type: ignore[method-assign]
    assert world.look() and "input/output error" in caplog.text
    world.disk.space_left = read  # type: ignore[method-assign]
    assert not world.look()
    world.keeper.stop()


def test_the_stage_of_a_replica_goes_and_that_of_a_failed_one_stays_for_its_next_copy() -> None:
    """A damaged replica is copied while it is hosted. Its stage was removed between two attempts."""
    world = World(age_s=1)
    replica = SimpleNamespace(log_only=False, failure="damage found: a bad page")
    world.replicas[TABLET] = replica
    assert world.look()
    replica.failure = ""
    assert not world.look()
