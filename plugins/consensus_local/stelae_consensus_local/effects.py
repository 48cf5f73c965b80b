"""The effects of a turn, collected until the driver takes them as one ``Ready``."""

from __future__ import annotations

from stelae.spi.consensus import Accepted, Fatal, HardState, LogAppend, ReadReady, Ready
from stelae.spi.ids import NodeId
from stelae.spi.log import Entry
from stelae.spi.members import TabletConfig
from stelae.spi.rejections import Rejection, RejectReason


class LocalEffects:
    """The effects since the last ``Ready``. ``next_id`` is the id of the ``Ready`` that will carry them."""

    __slots__ = (
        "accepted",
        "commit",
        "committed_config",
        "entries",
        "fatal",
        "handed_over",
        "hard_state",
        "next_id",
        "reads_ready",
        "rejections",
    )

    def __init__(self) -> None:
        self.next_id = 1
        self._clear()

    def _clear(self) -> None:
        self.hard_state: HardState | None = None
        self.entries: list[Entry] = []
        self.commit: int | None = None
        self.committed_config: TabletConfig | None = None
        self.accepted: list[Accepted] = []
        self.reads_ready: list[ReadReady] = []
        self.handed_over: list[int] = []
        self.rejections: list[Rejection] = []
        self.fatal: Fatal | None = None

    def reject(self, token: int, reason: RejectReason, leader: NodeId | None, detail: str = "") -> None:
        """Reject a request."""
        self.rejections.append(Rejection(token, reason, leader, detail))

    def drop_entries(self) -> None:
        """Drop the entries that were not handed out yet, and reject their proposals: they are in no log."""
        for accepted in self.accepted:
            self.reject(accepted.token, RejectReason.NOT_LEADER, None)
        self.accepted.clear()
        self.entries.clear()

    def take(self) -> Ready | None:
        """Return the effects as the next Ready, or ``None`` if there are none."""
        if self.fatal is not None:
            ready = Ready(id=self.next_id, fatal=self.fatal)
        elif self._is_empty():
            return None
        else:
            ready = self._build()
        self.next_id += 1
        self._clear()
        return ready

    def _is_empty(self) -> bool:
        lists = self.entries or self.accepted or self.reads_ready or self.handed_over or self.rejections
        return not lists and (self.hard_state, self.commit, self.committed_config) == (None, None, None)

    def _build(self) -> Ready:
        return Ready(
            id=self.next_id,
            hard_state=self.hard_state,
            append=LogAppend(entries=tuple(self.entries)) if self.entries else None,
            commit=self.commit,
            committed_config=self.committed_config,
            accepted=tuple(self.accepted),
            reads_ready=tuple(self.reads_ready),
            handed_over=tuple(self.handed_over),
            rejections=tuple(self.rejections),
        )
