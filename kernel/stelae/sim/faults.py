"""Carries out a fault plan, and undoes each fault at the end of its duration.

A fault is counted only if it changes something. Pausing a node that is down is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, assert_never

import msgspec

from stelae.sim.copied_voter import CopyOfVoter, FollowingVoters
from stelae.sim.coverage import Coverage
from stelae.sim.deposed_leader import DeposedLeader
from stelae.sim.fault_plan import LEADER, Fault, FaultKind
from stelae.sim.network import Network, NetworkLink
from stelae.sim.scheduler import Scheduler

SLOW_SYNC_US = 1_000_000
"""Longest extra time of a sync on a slow disk: as long as the longest election timeout."""

Undo: TypeAlias = Callable[[], None]


class FaultedNode(Protocol):
    """The operations of a node that faults need."""

    @property
    def up(self) -> bool:
        """True while a process runs, also if it is paused."""
        ...

    def start(self) -> None:
        """Start a process if none runs and the replica was not lost permanently."""
        ...

    def crash(self) -> None:
        """Lose power: un-synced changes are lost, torn or reordered."""
        ...

    def crash_after(self, operations: int | None) -> None:
        """Lose power after the given number of further disk operations; ``None`` cancels this."""
        ...

    def kill(self) -> None:
        """End the process. The disk keeps everything that was written."""
        ...

    def kill_after(self, operations: int, counted: str) -> None:
        """End the process before a disk operation, after the given number of operations whose name begins with
        ``counted``.

        It starts again soon, and finds changes that were not synced. A moment later power is lost."""
        ...

    def pause(self) -> None:
        """Pause the process."""
        ...

    def resume(self) -> None:
        """Resume the process, if it is paused."""
        ...

    def slow_disk(self, extra_us: int) -> None:
        """Make every sync and every save of metadata take up to so much longer."""
        ...

    def fill_disk(self, *, full: bool) -> None:
        """Fill the disk, or free its space again."""
        ...

    def refuse_log_writes(self, *, refused: bool) -> None:
        """Let all writes of logs find no space, or find it again."""
        ...

    def fail_sync(self) -> None:
        """Make the next sync of the replicated log fail."""
        ...

    def damage_log(self) -> None:
        """End the process, and flip a bit in a segment of the replicated log."""
        ...

    def restore_older_log(self) -> None:
        """End the process, and replace the replicated log by an older copy of it."""
        ...

    def lose_replica(self) -> bool:
        """End the process, and remove all files of a voter's replica. Return false if that cannot be done here."""
        ...

    def damage_rows(self) -> bool:
        """Change bytes of the stored rows, and read them. Return false if the read finds nothing wrong."""
        ...

    def find_damage(self) -> None:
        """Read all rows, if they were damaged and the damage is still there."""
        ...

    def has_copied_items(self) -> bool:
        """Return true if a process runs and the stage of a copy has complete items."""
        ...

    def damage_stage(self) -> None:
        """End the process, and change bytes of a complete item in the stage of a copy."""
        ...

    def jump_clock(self, by_us: int, *, seen: bool) -> None:
        """Move the wall clock, while the node runs (``seen``) or while it is down.

        A running node notices a jump and distrusts its clock. A node that was down believes the new time."""

    def undo_clock_jumps(self) -> None:
        """Undo all jumps of the wall clock."""
        ...


class FaultWorld(FollowingVoters, Protocol):
    """What faults depend on: the state of the cluster at the moment."""

    def leader(self) -> int | None:
        """Return the position of the current leader, or ``None``."""
        ...

    def bears_loss_of(self, position: int) -> bool:
        """Return true if the others are a majority without a node."""
        ...

    def is_voter_copied(self) -> bool:
        """Return true if the replica of a voter is a tombstone."""
        ...

    def witnesses(self) -> Sequence[int]:
        """Return the positions of the witnesses."""
        ...


class FaultDriver:
    """Starts and ends the faults of a plan.

    Args:
        world: the state of the cluster when a fault happens.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        nodes: Sequence[FaultedNode],
        world: FaultWorld,
        coverage: Coverage,
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._nodes = nodes
        self._world = world
        self._coverage = coverage
        self._healed = False
        self._deposed = DeposedLeader(scheduler, network, lambda: self._healed)
        self._copy = CopyOfVoter(scheduler, network, world, lambda: self._healed, self._all_links)

    def schedule(self, plan: Sequence[Fault]) -> None:
        """Schedule every fault for its time."""
        for fault in plan:
            self._scheduler.at(fault.at_us, f"fault.{fault.kind}", self._start_fault_call(fault))

    def heal(self) -> None:
        """End all faults, also those still planned. All links, disks and clocks work, and all nodes run."""
        self._healed = True
        self._network.heal()
        for node in self._nodes:
            node.crash_after(None)
            node.slow_disk(0)
            node.fill_disk(full=False)
            node.refuse_log_writes(refused=False)
            node.undo_clock_jumps()
            node.resume()
            node.start()

    def _start_fault_call(self, fault: Fault) -> Callable[[], None]:
        def strike() -> None:
            if self._healed:
                return
            undo = self._start_fault(fault)
            if undo is None:
                return
            self._coverage.hit(f"fault.{fault.kind}")
            label = f"undo.{fault.kind}"
            self._scheduler.after(fault.duration_us, label, lambda: self._undo(undo))

        if fault.kind is FaultKind.LEADER_IN_COPY:
            return lambda: self._copy.begin(fault.amount, self._world.is_voter_copied, strike)
        if fault.kind is FaultKind.STAGE_DAMAGED:
            return lambda: self._copy.begin(fault.amount, lambda: self._copied_node() is not None, strike)
        return strike

    def _copied_node(self) -> int | None:
        """Return the position of a node to which items of a copy have arrived."""
        return next((position for position, node in enumerate(self._nodes) if node.has_copied_items()), None)

    def _undo(self, undo: Undo) -> None:
        if not self._healed:
            undo()

    def _start_fault(self, fault: Fault) -> Undo | None:
        """Start a fault. Return how to undo it, or ``None`` if it changes nothing."""
        position = self._position(fault)
        node = self._nodes[position]
        kind = fault.kind
        if kind is FaultKind.LOSSY or kind is FaultKind.SLOW_LINKS:
            return self._start_link_fault(kind)
        if kind is FaultKind.ALONE_WITH_WITNESS:
            return self._leave_alone_with_witnesses(position, fault.amount)
        if kind is FaultKind.DEPOSED_WITH_FULL_DISK:
            self._deposed.begin(node, self._all_links(position), fault.amount)
            return lambda: None  # It ends by itself.
        if kind is FaultKind.LEADER_IN_COPY:
            kind = FaultKind.CRASH if fault.amount % 2 else FaultKind.PARTITION
            fault = msgspec.structs.replace(fault, kind=kind)
        links = _links(kind, position, fault.amount, len(self._nodes))
        if links:
            self._network.cut(links)
            return lambda: self._network.mend(links)
        if kind is FaultKind.ROWS_DAMAGED and not self._world.bears_loss_of(position):
            return None  # Nothing could heal it: the replica votes no more, and its tablet has no leader.
        return self._start_node_fault(node, fault) if node.up else None

    def _all_links(self, position: int) -> list[NetworkLink]:
        return _links(FaultKind.PARTITION, position, 0, len(self._nodes))

    def _start_node_fault(self, node: FaultedNode, fault: Fault) -> Undo | None:
        match fault.kind:
            case FaultKind.CRASH | FaultKind.KILL:
                (node.crash if fault.kind is FaultKind.CRASH else node.kill)()
            case FaultKind.DAMAGE | FaultKind.OLDER_LOG:
                (node.damage_log if fault.kind is FaultKind.DAMAGE else node.restore_older_log)()
            case FaultKind.ROWS_DAMAGED:
                return node.find_damage if node.damage_rows() else None
            case FaultKind.STAGE_DAMAGED:
                node.damage_stage()
            case FaultKind.LOST_REPLICA:
                return node.start if node.lose_replica() else None
            case FaultKind.CRASH_IN_COMMIT | FaultKind.KILL_IN_COMMIT:
                _end_within_an_operation(node, fault)
            case FaultKind.PAUSE:
                node.pause()
                return node.resume
            case FaultKind.SLOW_DISK | FaultKind.DISK_FULL | FaultKind.SYNC_FAILED:
                return _start_disk_fault(node, fault.kind)
            case FaultKind.CLOCK_JUMP:
                node.jump_clock(fault.amount, seen=fault.amount % 2 == 0)
                return node.undo_clock_jumps
            case FaultKind.PARTITION | FaultKind.PARTITION_IN | FaultKind.PARTITION_OUT | FaultKind.CUT_LINK:
                raise ValueError(f"{fault.kind} does not strike a node")
            case FaultKind.LOSSY | FaultKind.SLOW_LINKS | FaultKind.ALONE_WITH_WITNESS | FaultKind.LEADER_IN_COPY:
                raise ValueError(f"{fault.kind} does not strike a node")
            case FaultKind.DEPOSED_WITH_FULL_DISK:
                raise ValueError(f"{fault.kind} does not strike a node")
            case _:
                assert_never(fault.kind)
        return node.start

    def _start_link_fault(self, kind: FaultKind) -> Undo:
        network = self._network
        if kind is FaultKind.LOSSY:
            network.lossy += 1

            def undo() -> None:
                network.lossy -= 1
        else:
            network.slow += 1

            def undo() -> None:
                network.slow -= 1

        return undo

    def _leave_alone_with_witnesses(self, leader: int, power_lost_us: int) -> Undo | None:
        """Cut the links from a leader to all nodes but the witnesses, until its power is lost a moment later."""
        node, witnesses = self._nodes[leader], self._world.witnesses()
        if self._world.leader() != leader or not witnesses or leader in witnesses:
            return None
        links = [(leader, other) for other in range(len(self._nodes)) if other not in (leader, *witnesses)]
        self._network.cut(links)

        def lose_power() -> None:
            if not self._healed:
                self._network.mend(links)
                if node.up:
                    node.crash()

        self._scheduler.after(power_lost_us, "fault.power_lost", lose_power)
        return node.start

    def _position(self, fault: Fault) -> int:
        witnesses = self._world.witnesses() if fault.kind is FaultKind.LOST_REPLICA else ()
        if witnesses and fault.amount % 4:
            return witnesses[0]  # These faults are rare, so most of them hit a witness if the run has one.
        if fault.kind is FaultKind.STAGE_DAMAGED and (copied := self._copied_node()) is not None:
            return copied
        if fault.victim != LEADER:
            return fault.victim
        leader = self._world.leader()
        return leader if leader is not None else fault.number % len(self._nodes)


def _start_disk_fault(node: FaultedNode, kind: FaultKind) -> Undo:
    if kind is FaultKind.SLOW_DISK:
        node.slow_disk(SLOW_SYNC_US)
        return lambda: node.slow_disk(0)
    if kind is FaultKind.DISK_FULL:
        node.fill_disk(full=True)
        return lambda: node.fill_disk(full=False)
    node.fail_sync()
    return lambda: None


def _end_within_an_operation(node: FaultedNode, fault: Fault) -> None:
    """Let a node end at a disk operation. Half of the kills come just before a rename is durable, which is rare."""
    half, odd = divmod(fault.amount, 2)
    if fault.kind is FaultKind.CRASH_IN_COMMIT:
        node.crash_after(fault.amount)
    elif odd:
        node.kill_after(half // 3, "sync_directory")
    else:
        node.kill_after(fault.amount, "")


def _links(kind: FaultKind, position: int, amount: int, nodes: int) -> list[NetworkLink]:
    """Return the directed links between nodes that a fault cuts; none for other kinds of fault."""
    others = [other for other in range(nodes) if other != position]
    incoming = [(other, position) for other in others]
    outgoing = [(position, other) for other in others]
    match kind:
        case FaultKind.PARTITION:
            return incoming + outgoing
        case FaultKind.PARTITION_IN:
            return incoming
        case FaultKind.PARTITION_OUT:
            return outgoing
        case FaultKind.CUT_LINK:
            return [(position, others[amount % len(others)])]
        case _:
            return []
