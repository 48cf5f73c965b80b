"""The builder of a ``Ready``: it collects the effects of a turn in the order in which they must become true."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from stelae.spi.consensus import (
    Accepted,
    Beats,
    ConfigChanged,
    CopyRequest,
    Fatal,
    HardState,
    LogAppend,
    Outbound,
    Range,
    ReadReady,
    Ready,
)
from stelae.spi.ids import NodeId
from stelae.spi.log import Entry
from stelae.spi.members import TabletConfig
from stelae.spi.rejections import Rejection


class ReadyBuilder:
    """The effects since the last ``Ready``. ``next_id`` is the id of the ``Ready`` that will carry them."""

    __slots__ = (
        "_after_persist",
        "_at_once",
        "_entries",
        "_replace_from",
        "_sent_last_index",
        "aborted",
        "accepted",
        "beats",
        "commit",
        "committed_config",
        "config_changes",
        "copy_requests",
        "fatal",
        "handed_over",
        "hard_state",
        "next_id",
        "ranges",
        "reads_ready",
        "rejections",
        "stood_down",
    )

    def __init__(self, last_index: int) -> None:
        self.next_id = 1
        self._sent_last_index = last_index
        self._clear()

    def _clear(self) -> None:
        self.hard_state: HardState | None = None
        self._entries: list[Entry] = []
        self._replace_from: int | None = None
        self._after_persist: list[Outbound] = []
        self._at_once: list[Outbound] = []
        self.ranges: list[Range] = []
        self.commit: int | None = None
        self.committed_config: TabletConfig | None = None
        self.beats: Beats | None = None
        self.accepted: list[Accepted] = []
        self.reads_ready: list[ReadReady] = []
        self.handed_over: list[int] = []
        self.config_changes: list[ConfigChanged] = []
        self.aborted: list[int] = []
        self.stood_down: list[int] = []
        self.copy_requests: list[CopyRequest] = []
        self.rejections: list[Rejection] = []
        self.fatal: Fatal | None = None

    # -- messages --------------------------------------------------------------------------------

    def send(self, to: NodeId, message: msgspec.Struct, term: int) -> None:
        """Send a message that depends on term and vote only: at once, unless this Ready changes them."""
        outbound = Outbound(to, message, term)
        (self._at_once if self.hard_state is None else self._after_persist).append(outbound)

    def send_durable(self, to: NodeId, message: msgspec.Struct, term: int) -> None:
        """Send a message once this Ready and all before it are durable."""
        self._after_persist.append(Outbound(to, message, term))

    def drop_messages(self) -> None:
        """Drop the messages and ranges that wait for durability, because their term has ended (durability rule 1)."""
        self._after_persist.clear()
        self.ranges.clear()

    # -- the log ---------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries after those that were appended before."""
        self._entries.extend(entries)

    def truncate(self, index: int) -> None:
        """Remove everything at or above ``index``, also entries of earlier Readies."""
        while self._entries and self._entries[-1].op_id.index >= index:
            self._entries.pop()
        if index <= self._sent_last_index:
            self._replace_from = index
            self._sent_last_index = index - 1

    def log_failed(self, last_index: int, durable_index: int) -> None:
        """Note that a failed write cut the log to ``last_index``, and drop the entries that would follow it.

        The driver has cut its log to ``durable_index``. What this Ready was to replace below that is still in the
        driver's log, and the core knows it no more. So this Ready still removes it."""
        self._entries.clear()
        if self._replace_from is not None and self._replace_from > durable_index:
            self._replace_from = None
        self._sent_last_index = last_index

    def replaces_from(self) -> int | None:
        """Return the index from which this Ready replaces the log, or ``None``."""
        return self._replace_from

    # -- handing out -----------------------------------------------------------------------------

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
        return not (
            self._at_once
            or self._after_persist
            or self.ranges
            or self._entries
            or self.accepted
            or self.rejections
            or self.reads_ready
            or self.handed_over
            or self.config_changes
            or self.aborted
            or self.stood_down
            or self.commit is not None
            or self.hard_state is not None
            or self._replace_from is not None
            or self.beats is not None
            or self.committed_config is not None
            or self.copy_requests
        )

    def _build(self) -> Ready:
        append = None
        if self._entries or self._replace_from is not None:
            append = LogAppend(entries=tuple(self._entries), replace_from=self._replace_from)
            if self._entries:
                self._sent_last_index = self._entries[-1].op_id.index
        return Ready(
            id=self.next_id,
            hard_state=self.hard_state,
            append=append,
            after_persist=tuple(self._after_persist),
            at_once=tuple(self._at_once),
            ranges=tuple(self.ranges),
            commit=self.commit,
            committed_config=self.committed_config,
            beats=self.beats,
            accepted=tuple(self.accepted),
            reads_ready=tuple(self.reads_ready),
            handed_over=tuple(self.handed_over),
            config_changes=tuple(self.config_changes),
            aborted=tuple(self.aborted),
            stood_down=tuple(self.stood_down),
            copy_requests=tuple(self.copy_requests),
            rejections=tuple(self.rejections),
        )
