"""Tombstones keep their promises, copies reach them, and nothing is deleted without a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from stelae.host.start_copy import StartCopy
from stelae.host.superblock import DataState, Superblock
from stelae.sim.invariants.base import Invariant
from stelae.sim.log_model import LogModel
from stelae.sim.world import Needs, ObservedNode, World
from stelae.spi.consensus import Outbound
from stelae.spi.consensus_events import Event, Received
from stelae.spi.ids import NodeId, OpId
from stelae.spi.wal import Append, Outcome

SHUT_DOWN_US: Final = 1_500_000
"""Longest time from the last look at a replica to its tombstone, in microseconds: a slow sync, and some more."""


class TombstonePromises(Invariant):
    """A tombstone has the last op id that its replica ever had, as long as no copy has reached it.

    So it votes for no candidate that lacks an entry which the replica had acknowledged. A replica that is READY has a
    durable log, which reaches the tombstone before it, or, without rows, still has the op id of the tombstone."""

    name: ClassVar[str] = "tombstone_promises"
    source: ClassVar[str] = "durability.md rules 18, 19 and 22"

    def on_superblock(
        self, node: ObservedNode, before: Superblock | None, block: Superblock, log: LogModel | None
    ) -> None:
        """Check the op ids of two superblocks that follow each other."""
        if before is None or node.given_up:
            return
        promised: object = before.tombstone
        if before.data_state is DataState.READY and block.data_state is not DataState.READY:
            had = node.last_durable()
            promised = max(had, promised) if isinstance(promised, OpId) else had
        if not isinstance(promised, OpId):
            return
        if block.data_state is DataState.READY:
            self._judge_ready(node, block, log, promised)
        elif not isinstance(block.tombstone, OpId) or block.tombstone < promised:
            self.fail(f"the tombstone of node {node.position} ends at {block.tombstone}, its replica had {promised}")

    def _judge_ready(self, node: ObservedNode, block: Superblock, log: LogModel | None, promised: OpId) -> None:
        if block.tombstone == promised:
            return  # It began over the tombstone without a copy, and votes by the larger of the two.
        if log is None:
            self.fail(f"node {node.position} is READY, but has no log {block.log_id}")
        elif log.last() < promised:
            self.fail(f"node {node.position} is READY with a log up to {log.last()}, its replica had {promised}")


class TombstonesVote(Invariant):
    """A tombstone that knows the last op id of its replica refuses no vote because of a log that reaches it.

    A replica that is being copied has a tombstone, too. The tablet may need its vote while another voter is down."""

    name: ClassVar[str] = "tombstones_vote"
    source: ClassVar[str] = "durability.md rule 19"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._requests: dict[tuple[int, NodeId, int, int], OpId] = {}

    def on_step(self, node: ObservedNode, events: Sequence[Event]) -> None:
        """Record where the log of a candidate ends that asks for a vote."""
        for event in events:
            if not isinstance(event, Received):
                continue
            term, attempt, last = (getattr(event.message, name, None) for name in ("term", "attempt", "last"))
            if isinstance(term, int) and isinstance(attempt, int) and isinstance(last, OpId):
                self._requests[node.position, event.sender, term, attempt] = last

    def on_sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """Check the reason of a refusal."""
        block, message = node.block, outbound.message
        last = block.tombstone if block is not None and block.data_state is not DataState.READY else None
        term, attempt, refusal = (getattr(message, name, None) for name in ("campaign_term", "attempt", "refusal"))
        if not isinstance(last, OpId) or not isinstance(term, int) or not isinstance(attempt, int):
            return
        candidate = self._requests.get((node.position, outbound.to, term, attempt))
        if candidate is None:
            return
        if refusal == "LOG_UNKNOWN" or (refusal == "LOG_BEHIND" and candidate >= last):
            fact = f"the tombstone of node {node.position} ends at {last} and answers {refusal}"
            self.fail(f"{fact} to a candidate whose log ends at {candidate}")


class NoNeedlessDeletion(Invariant):
    """A replica is set aside only for a copy that it needs, or because a committed config does not list its node.

    It needs a copy if it lacks the entry at which the log of an asking leader begins, or if its rows are damaged.
    Entries that were under way when the replica was looked at last may become durable until it is shut down."""

    name: ClassVar[str] = "no_needless_deletion"
    source: ClassVar[str] = "durability.md rules 17 and 27"

    def __init__(self, world: World, report: Callable[[str, str], None]) -> None:
        super().__init__(world, report)
        self._asked: dict[str, set[OpId]] = {}
        self._appended_us: dict[tuple[int, OpId], int] = {}
        self._seen: dict[int, set[OpId]] = {}

    def on_copy_asked(self, node: ObservedNode, asked: StartCopy) -> None:
        """Record where the log of a leader begins that asks for a copy."""
        self._asked.setdefault(asked.to, set()).add(asked.log_base)

    def on_wal(self, node: ObservedNode, append: Append, outcome: Outcome) -> None:
        """Record when a node got the entry that it was asked about."""
        bases = self._asked.get(node.node_id, ())
        for op_id in (entry.op_id for entry in append.entries if entry.op_id in bases):
            self._appended_us[node.position, op_id] = self.world.now_us()

    def on_deletion_asked(self, node: ObservedNode, seen: OpId) -> None:
        """Record the config that a master has seen."""
        self._seen.setdefault(node.position, set()).add(seen)

    def on_superblock(
        self, node: ObservedNode, before: Superblock | None, block: Superblock, log: LogModel | None
    ) -> None:
        """Check the reason of a new tombstone."""
        if before is None or before.data_state is not DataState.READY or block.data_state is DataState.READY:
            return
        if node.given_up or node.rows_damaged:
            return
        known = node.committed_config
        removed = known is not None and known.op_id in self._seen.get(node.position, ())
        if not removed and all(self._has_long_held(node, base) for base in self._asked.get(node.node_id, ())):
            self.fail(f"node {node.position} sets its replica aside, although it has what every leader's log begins at")

    def _has_long_held(self, node: ObservedNode, base: OpId) -> bool:
        appended_us = self._appended_us.get((node.position, base), -SHUT_DOWN_US)
        return self.world.holds(node, base) and self.world.now_us() - appended_us >= SHUT_DOWN_US
