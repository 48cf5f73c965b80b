"""The nodes of the conformance cluster, and the messages between them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from stelae.spi.consensus import Beats, ConsensusCore, Fatal, LogAppend, Outbound, Ready, Status
from stelae.spi.ids import NodeId
from stelae.spi.log import Entry
from stelae.testing.conformance.consensus_disk import ConsensusDisk

NO_BEATS = Beats(0, ())


def node_name(number: int) -> NodeId:
    """Node id of the cluster's node ``number``."""
    return NodeId(f"{number:032x}")


class UnknownMessage(msgspec.Struct, frozen=True):
    """A message that belongs to no engine."""

    text: str = "hello"


@dataclass(frozen=True, slots=True)
class InFlightMessage:
    """A message that was sent and not delivered yet."""

    sender: int
    to: int
    message: msgspec.Struct
    entries: tuple[Entry, ...] = ()


@dataclass(slots=True)
class ClusterNode:
    """One replica: its disk, its core while it runs, and the Readies that are not durable yet."""

    number: int
    disk: ConsensusDisk
    core: ConsensusCore | None = None
    log: list[Entry] = field(default_factory=list)
    pending: deque[Ready] = field(default_factory=deque)
    deferred: list[tuple[int, Outbound]] = field(default_factory=list)
    beats: Beats = NO_BEATS
    holds: bool = False
    """True while a Ready becomes durable only when a test calls ``persist``."""
    readies: list[Ready] = field(default_factory=list)
    fatal: Fatal | None = None
    restarts: int = 0

    def append(self, change: LogAppend) -> None:
        """Carry out a change of the log. Entries without a timestamp get one."""
        base = self.disk.base.index
        if change.replace_from is not None:
            assert base < change.replace_from <= base + len(self.log), "replaces entries that the log does not hold"
            del self.log[change.replace_from - base - 1 :]
        for entry in change.entries:
            assert entry.op_id.index == base + len(self.log) + 1, "entries are contiguous"
            assert not self.log or entry.op_id.term >= self.log[-1].op_id.term
            stamp = entry.timestamp or entry.op_id.index
            self.log.append(Entry(entry.op_id, entry.kind, stamp, entry.body))

    @property
    def running(self) -> ConsensusCore:
        """The core of a node that runs."""
        assert self.core is not None, f"node {self.number} is down"
        return self.core

    @property
    def status(self) -> Status:
        """The core's status."""
        return self.running.status()
