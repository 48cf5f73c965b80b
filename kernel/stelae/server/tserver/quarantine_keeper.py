"""Keeps a node's quarantine within its limits, and reports how much the quarantine holds.

It removes the directories that are too old, and then the oldest ones until the size limit and the free space of the
disk are respected (``durability.md`` rule 22). Each directory is removed under its tablet's lock, so a directory that
a deletion still fills is not removed. The less space is free, the sooner it looks again."""

from __future__ import annotations

import logging
from functools import partial

from stelae.host.hybrid_clock import physical_us
from stelae.host.node import Node
from stelae.host.ports import Timer
from stelae.lifecycle.quarantine import Quarantined, QuarantineSettings, allowed_bytes, list_quarantine, names_to_purge
from stelae.lifecycle.space_looks import next_look_us
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.protocol.codec import decode, encode
from stelae.protocol.node_messages import QUARANTINE, QuarantineInfo, QuarantineRequest
from stelae.server.frames import only_frame
from stelae.spi.errors import StelaeError, Unavailable
from stelae.wire.requests import Request

log = logging.getLogger(__name__)


class QuarantineKeeper:
    """Purges the quarantine of one node.

    Args:
        manager: locks tablets and removes directories; ``ReplicaLifecycle`` shares its own.
    """

    def __init__(self, node: Node, manager: TabletManager) -> None:
        self._node = node
        self._manager = manager
        self._settings: QuarantineSettings = node.config.extra.get("quarantine") or QuarantineSettings()
        self._timer: Timer | None = None
        self._stopped = False
        self._busy = False

    def start(self) -> None:
        """Register the handler and start the timer."""
        self._node.messenger.serve(QUARANTINE, self._serve)
        self._timer = self._node.turns.call_at(self._node.turns.now_us(), self._look)

    def stop(self) -> None:
        """Stop the timer. A removal that is under way ends now, or after the next start."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # -- limits ----------------------------------------------------------------------------------

    def _look(self) -> None:
        self._look_again(self._settings.interval_ms * 1000)
        if not self._busy:
            self._busy = True
            self._node.scans.run("quarantine", self._read, self._apply_limits)

    def _read(self) -> tuple[list[Quarantined], int]:
        """Return the quarantine's directories and the free bytes of the disk. Blocks, so it runs on a pool."""
        node = self._node
        return list_quarantine(node.files, node.layout), node.files.space_left(node.layout.root)

    def _apply_limits(self, result: tuple[list[Quarantined], int] | Exception) -> None:
        if isinstance(result, Exception):
            self._busy = False
            log.warning("quarantine cannot be read reason=%s", result)
            return
        found, free_bytes = result
        self._look_again(next_look_us(free_bytes, self._settings.free_bytes_min, self._settings.interval_ms))
        now_us = physical_us(self._node.time.last)
        names = names_to_purge(
            found,
            bytes_max=allowed_bytes(found, self._settings, free_bytes),
            deleted_before_us=now_us - self._settings.age_s_max * 1_000_000,
        )
        self._purge([one for one in found if one.name in names], free_bytes)

    def _look_again(self, pause_us: int) -> None:
        """Look again after a pause, and not when it was planned before."""
        if self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._node.turns.call_at(self._node.turns.now_us() + pause_us, self._look)

    def _purge(self, directories: list[Quarantined], free_bytes: int) -> None:
        """Remove the directories one after the other."""
        if not directories:
            self._busy = False
            return
        one, *others = directories

        def done(error: StelaeError | None) -> None:
            if error is not None:
                log.warning("quarantine not purged name=%s reason=%s", one.name, error)
            else:
                table, deleted = ("", "") if one.about is None else (one.about.table_name, str(one.about.deleted_us))
                what = (one.name, one.size_bytes, table, deleted, free_bytes)
                log.info("quarantine purged name=%s size_bytes=%d table=%s deleted_us=%s free_bytes=%d", *what)
            self._purge(others, free_bytes)

        self._manager.purge(one.name, done)

    # -- questions -------------------------------------------------------------------------------

    def _serve(self, request: Request) -> None:
        decode(only_frame(request), QuarantineRequest)
        self._node.scans.run("quarantine", self._read, partial(self._answer, request))

    def _answer(self, request: Request, result: tuple[list[Quarantined], int] | Exception) -> None:
        if isinstance(result, Exception):
            request.refuse(Unavailable(f"the quarantine cannot be read: {result}"))
            return
        request.reply([encode(self._info(*result))])

    def _info(self, found: list[Quarantined], free_bytes: int) -> QuarantineInfo:
        dated = [one.about.deleted_us for one in found if one.about is not None]
        now_us = physical_us(self._node.time.last)
        return QuarantineInfo(
            count=len(found),
            size_bytes=sum(one.size_bytes for one in found),
            unreadable=sum(one.about is None and one.of_deletion for one in found),
            oldest_s=max(0, now_us - min(dated)) // 1_000_000 if dated else None,
            bytes_max=self._settings.bytes_max,
            age_s_max=self._settings.age_s_max,
            free_bytes_min=self._settings.free_bytes_min,
            free_bytes=free_bytes,
        )
