"""The disk of one replica in the conformance cluster, and the durable effects of a Ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stelae.spi.consensus import HardState, LogView, Ready
from stelae.spi.ids import ZERO, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig, decode_config


@dataclass(slots=True)
class ConsensusDisk:
    """The durable state of one replica. ``entries[i]`` has index ``base.index + 1 + i``."""

    config: TabletConfig
    base: OpId = ZERO
    hard_state: HardState = field(default_factory=HardState)
    entries: list[Entry] = field(default_factory=list)
    commit_hint: int = 0
    log_only: bool = False  #: The replica has no rows: that of a witness.
    vote_floor: OpId = ZERO  #: Where the log of an earlier replica of the node ended (``LogView.vote_floor``).

    @property
    def last(self) -> OpId:
        """Op id of the last durable entry, or the base."""
        return self.entries[-1].op_id if self.entries else self.base

    def put(self, entry: Entry) -> None:
        """Store an entry, in place of everything at or above its index."""
        self.cut(entry.op_id.index)
        self.entries.append(entry)

    def cut(self, index: int) -> None:
        """Remove everything at or above ``index``."""
        del self.entries[max(index - self.base.index - 1, 0) :]

    def view(self) -> LogView:
        """The description of the log from which a core is restored."""
        runs: list[tuple[int, int]] = []
        for entry in self.entries:
            if not runs or runs[-1][1] != entry.op_id.term:
                runs.append((entry.op_id.index, entry.op_id.term))
        configs = [decode_config(e) for e in self.entries if e.kind is EntryKind.CONFIG]
        return LogView(
            base=self.base,
            last=self.last,
            term_runs=tuple(runs),
            configs=tuple(configs),
            log_only=self.log_only,
            vote_floor=self.vote_floor if self.last < self.vote_floor else ZERO,
        )

    def copy(self) -> ConsensusDisk:
        """An independent copy."""
        return replace(self, entries=list(self.entries))


def effects_of(ready: Ready, log: list[Entry], base: OpId) -> list[Callable[[ConsensusDisk], None]]:
    """Return the durable effects of a Ready in their order. A crash may come after any of them."""
    effects: list[Callable[[ConsensusDisk], None]] = []
    hard_state = ready.hard_state
    if hard_state is not None:
        effects.append(lambda disk: setattr(disk, "hard_state", hard_state))
    if ready.append is not None:
        if ready.append.replace_from is not None and not ready.append.entries:
            index = ready.append.replace_from
            effects.append(lambda disk: disk.cut(index))
        for entry in ready.append.entries:
            stamped = Entry(entry.op_id, entry.kind, entry.timestamp or entry.op_id.index, entry.body)
            effects.append(lambda disk, stamped=stamped: disk.put(stamped))  # type: ignore[misc]
    return effects
