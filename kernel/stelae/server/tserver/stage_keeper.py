"""Removes the stages of copies that will not be used again, or whose space is needed (``lifecycle.stage_limits``).

Each stage is removed under its tablet's lock, so no copy begins with it meanwhile."""

from __future__ import annotations

import logging
from functools import partial

from stelae.host.hybrid_clock import physical_us
from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.lifecycle.blocking_steps import OffLoop, Steps
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.copy_stage import remove_stage
from stelae.lifecycle.space_looks import next_look_us
from stelae.lifecycle.stage_limits import StoredStage, list_stages, stages_to_remove
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.server.tserver.copy_target import CopyTargetService
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId

log = logging.getLogger(__name__)


class StageKeeper:
    """Keeps the stages of one node within their limits."""

    def __init__(self, node: Node, manager: TabletManager, copies: CopyTargetService) -> None:
        self._node = node
        self._manager = manager
        self._copies = copies
        self._settings: StageSettings = node.config.extra.get("stage") or StageSettings()
        self._timer: Timer | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the timer."""
        self._timer = self._node.turns.call_at(self._node.turns.now_us(), self._look)

    def stop(self) -> None:
        """Stop the timer."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._look_again(self._settings.interval_ms * 1000)
        self._node.scans.run("stages", self._read, self._apply_limits)

    def _read(self) -> tuple[list[StoredStage], int]:
        node = self._node
        return list_stages(node.files, node.layout), node.files.space_left(node.layout.root)

    def _apply_limits(self, result: tuple[list[StoredStage], int] | Exception) -> None:
        if isinstance(result, Exception):
            log.warning("stages cannot be read reason=%s", result)
            return
        found, free_bytes = result
        self._look_again(next_look_us(free_bytes, self._settings.free_bytes_min, self._settings.interval_ms))
        node = self._node
        for tablet in stages_to_remove(
            found,
            self._settings,
            in_use=self._copies.stages_in_use,
            sound={tablet for tablet, one in node.replicas.items() if not one.log_only and not one.failure},
            now_us=physical_us(node.time.last),
            free_bytes=free_bytes,
        ):
            self._manager.run(tablet, "cleaned", self._remove(tablet), partial(_removed, tablet), pool=node.scans)

    def _look_again(self, pause_us: int) -> None:
        """Look again after a pause, and not when it was planned before."""
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._node.turns.call_at(self._node.turns.now_us() + pause_us, self._look)

    def _remove(self, tablet: TabletId) -> Steps[None]:
        node = self._node
        yield OffLoop(lambda: remove_stage(node.files, node.layout, tablet))


def _removed(tablet: TabletId, error: StelaeError | None) -> None:
    if error is not None:
        log.warning("stage not removed tablet=%s reason=%s", tablet, error)
    else:
        log.info("stage removed tablet=%s", tablet)
