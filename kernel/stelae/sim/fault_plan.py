"""The fault plan of one run, drawn at its start. A failing run is shrunk by leaving out faults.

A fault names its victim by position. ``LEADER`` means the node that leads when the fault happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from stelae.sim.draw import between, chance, pick, skewed, stream
from stelae.sim.profile import Profile

LEADER = -1
"""As a victim: the node that leads at that moment. If no node leads, the fault's number chooses one."""


class FaultKind(StrEnum):
    """The kinds of faults. Each is counted as ``fault.<kind>`` when it changes something."""

    CRASH = "crash"
    """Power is lost: un-synced writes are lost, torn or reordered."""
    CRASH_IN_COMMIT = "crash_in_commit"
    """Power is lost at a drawn disk operation."""
    KILL_IN_COMMIT = "kill_in_commit"
    """The process ends at a drawn disk operation. Its next run finds what it had not synced, until power is lost."""
    KILL = "kill"
    """The process ends. Everything that it wrote, synced or not, is still on the disk."""
    PAUSE = "pause"
    """The process is paused and resumed later."""
    PARTITION = "partition"
    """The node neither sends to nor receives from the other nodes."""
    PARTITION_IN = "partition_in"
    """The node receives nothing from the other nodes, but its messages arrive."""
    PARTITION_OUT = "partition_out"
    """The node receives messages from the other nodes, but its own messages are lost."""
    CUT_LINK = "cut_link"
    """One direction of one link is cut."""
    LOSSY = "lossy"
    """Every link loses a large share of its messages."""
    SLOW_LINKS = "slow_links"
    """Every link is slow and reorders widely."""
    SLOW_DISK = "slow_disk"
    """Syncs of one node take up to a second longer."""
    DISK_FULL = "disk_full"
    """The disk of one node is full for a while."""
    DEPOSED_WITH_FULL_DISK = "deposed_with_full_disk"
    """The leader is cut off while it takes writes. When it is reached again, its disk is full on and off, so that it
    fails to remove the entries that the next leader replaces."""
    SYNC_FAILED = "sync_failed"
    """A sync of one node's log fails. Its replica is lost permanently."""
    DAMAGE = "damage"
    """The process ends, and a bit of a log segment is flipped. The replica is lost permanently."""
    OLDER_LOG = "older_log"
    """The process ends, and its log is replaced by an older copy. The replica is lost permanently."""
    LOST_REPLICA = "lost_replica"
    """The process ends, and all files of a voter's replica are gone. The node starts again without it, permanently."""
    ALONE_WITH_WITNESS = "alone_with_witness"
    """The leader reaches no other node than witnesses. A moment later its power is lost, so that a witness may have the
    only entries of its term. Only in runs with witnesses."""
    LEADER_IN_COPY = "leader_in_copy"
    """A voter is cut off until it needs a copy. While it is copied, the leader loses its power or all of its links, so
    that the vote of the tombstone may decide. Only in runs with copies."""
    ROWS_DAMAGED = "rows_damaged"
    """Bytes of the stored rows change, and a read finds it. The replica fails, and its leader has it copied in its
    place. Only in runs with copies that lose no replica permanently."""
    STAGE_DAMAGED = "stage_damaged"
    """A voter is cut off until it needs a copy. While it is copied, the process ends, and bytes of an item change that
    has arrived. Only in runs with copies."""
    CLOCK_JUMP = "clock_jump"
    """One node's wall clock jumps forward or back, perhaps further than peers accept."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One planned fault.

    Attributes:
        number: position in the plan; identifies the fault on the command line.
        at_us: time at which it starts.
        victim: a node's position, or ``LEADER``.
        duration_us: time until it is undone (a crashed node starts again).
        amount: depends on the kind: disk operations until the crash or the kill, microseconds of the clock jump,
            microseconds until power is lost, the node at the other end of the cut link, or which of two effects.
    """

    number: int
    kind: FaultKind
    at_us: int
    victim: int
    duration_us: int
    amount: int


PERMANENT = (FaultKind.SYNC_FAILED, FaultKind.DAMAGE, FaultKind.OLDER_LOG, FaultKind.LOST_REPLICA)
"""Kinds of faults that a replica does not recover from. Nothing replaces a lost replica in a run."""

_OF_LINKS = (
    FaultKind.PARTITION,
    FaultKind.PARTITION_IN,
    FaultKind.PARTITION_OUT,
    FaultKind.CUT_LINK,
    FaultKind.DEPOSED_WITH_FULL_DISK,
)
"""Kinds of faults between nodes."""

_OF_LEADERS = (FaultKind.ALONE_WITH_WITNESS, FaultKind.LEADER_IN_COPY, FaultKind.DEPOSED_WITH_FULL_DISK)
"""Kinds of faults that strike only leaders."""

_KEPT = (*PERMANENT, FaultKind.ROWS_DAMAGED, FaultKind.STAGE_DAMAGED)
"""Kinds of faults that are drawn for a whole run, so that no other one takes their place."""

_COMMON = (
    FaultKind.CRASH,
    FaultKind.CRASH,
    FaultKind.CRASH_IN_COMMIT,
    FaultKind.CRASH_IN_COMMIT,
    FaultKind.KILL,
    FaultKind.PAUSE,
    FaultKind.PAUSE,
    FaultKind.PARTITION,
    FaultKind.PARTITION,
    FaultKind.PARTITION_IN,
    FaultKind.PARTITION_OUT,
    FaultKind.CUT_LINK,
    FaultKind.LOSSY,
    FaultKind.SLOW_LINKS,
    FaultKind.SLOW_DISK,
    FaultKind.DISK_FULL,
    FaultKind.CLOCK_JUMP,
)


KILLED_SHARE = 0.5
"""Share of the power losses at a drawn disk operation in whose place the process is killed there."""

ALONE_WITH_WITNESS_SHARE = 0.35
"""Share of the faults of that kind in runs with witnesses."""

LEADER_IN_COPY_SHARE = 0.3
"""Share of the faults of that kind in runs with copies."""

ROWS_DAMAGED_SHARE = 0.6
"""Share of the runs with copies that have one fault of that kind, if they lose no replica permanently."""

STAGE_DAMAGED_SHARE = 0.3
"""Share of the runs with copies that have one fault of that kind."""

DEPOSED_SHARE = 0.3
"""Share of the runs that have one fault of that kind."""

ALONE_US_MAX = 400_000
"""Longest time for which a leader reaches only witnesses."""


def draw_plan(seed: int, profile: Profile) -> tuple[Fault, ...]:
    """Return the faults of a seed in order of time.

    At most one of them loses a replica permanently, because two of the three replicas must remain. A node without
    peers has no such faults, and none of links.
    """
    rng = stream(seed, "plan")
    kinds = [pick(rng, _COMMON) for _ in range(profile.faults)]
    if chance(rng, 0.3):
        kinds[between(rng, 0, len(kinds) - 1)] = _draw_permanent(seed, profile, pick(rng, PERMANENT[:2]))
    kinds = _with_kills(seed, kinds)
    if profile.witnesses:
        kinds = _with(seed, kinds, "witnesses", FaultKind.ALONE_WITH_WITNESS, ALONE_WITH_WITNESS_SHARE)
    if profile.copies:
        kinds = _with(seed, kinds, "copies", FaultKind.LEADER_IN_COPY, LEADER_IN_COPY_SHARE)
        kinds = _with_one(seed, _with_damaged_rows(seed, kinds), "stage", FaultKind.STAGE_DAMAGED, STAGE_DAMAGED_SHARE)
    kinds = _with_one(seed, kinds, "deposed", FaultKind.DEPOSED_WITH_FULL_DISK, DEPOSED_SHARE)
    if profile.nodes == 1:
        kinds = [kind for kind in kinds if kind not in (*PERMANENT, *_OF_LINKS)]
    drawn = []
    for kind in kinds:
        at_us = between(rng, profile.safety_us // 20, profile.safety_us)
        victim = LEADER if chance(rng, 0.5) else between(rng, 0, profile.nodes - 1)
        victim = LEADER if kind in _OF_LEADERS else victim
        duration_us = skewed(rng, 20_000, profile.safety_us // 3)
        drawn.append((at_us, kind, victim, duration_us, _amount(rng.random(), kind)))
    drawn.sort(key=lambda fault: fault[0])
    return tuple(
        Fault(number=n, at_us=a, kind=k, victim=v, duration_us=d, amount=m) for n, (a, k, v, d, m) in enumerate(drawn)
    )


def _draw_permanent(seed: int, profile: Profile, kind: FaultKind) -> FaultKind:
    """Replace a drawn permanent fault in a share of the plans: by ``LOST_REPLICA`` if members change, by ``OLDER_LOG``.

    A leader creates replicas only where members change."""
    if profile.member_change_us is not None and chance(stream(seed, "plan/lost"), 0.5):
        return FaultKind.LOST_REPLICA
    return FaultKind.OLDER_LOG if chance(stream(seed, "plan/older"), 0.4) else kind


def _with_kills(seed: int, kinds: Sequence[FaultKind]) -> list[FaultKind]:
    """Replace some of the power losses at a drawn disk operation."""
    rng = stream(seed, "plan/killed")
    replaced = [kind is FaultKind.CRASH_IN_COMMIT and chance(rng, KILLED_SHARE) for kind in kinds]
    return [FaultKind.KILL_IN_COMMIT if drawn else kind for kind, drawn in zip(kinds, replaced, strict=True)]


def _with_damaged_rows(seed: int, kinds: Sequence[FaultKind]) -> list[FaultKind]:
    """Replace one fault by damage, unless a replica is lost: of three, two must remain."""
    rng, changed = stream(seed, "plan/damaged"), list(kinds)
    if chance(rng, ROWS_DAMAGED_SHARE) and not any(kind in PERMANENT for kind in kinds):
        changed[between(rng, 0, len(kinds) - 1)] = FaultKind.ROWS_DAMAGED
    return changed


def _with_one(seed: int, kinds: Sequence[FaultKind], purpose: str, other: FaultKind, share: float) -> list[FaultKind]:
    """Replace one fault of an ordinary kind by another kind, in a share of the plans."""
    rng, changed = stream(seed, f"plan/{purpose}"), list(kinds)
    if chance(rng, share):
        others = [number for number, kind in enumerate(kinds) if kind not in _KEPT]
        if others:
            changed[pick(rng, others)] = other
    return changed


def _with(seed: int, kinds: Sequence[FaultKind], purpose: str, other: FaultKind, share: float) -> list[FaultKind]:
    """Replace a share of the faults that are not permanent by another kind."""
    rng = stream(seed, f"plan/{purpose}")
    replaced = [chance(rng, share) for _ in kinds]
    return [other if drawn and kind not in PERMANENT else kind for kind, drawn in zip(kinds, replaced, strict=True)]


def _amount(share: float, kind: FaultKind) -> int:
    """Compute ``Fault.amount`` for a kind of fault from a random share."""
    if kind in (FaultKind.CRASH_IN_COMMIT, FaultKind.KILL_IN_COMMIT):
        return int(share * 12)
    if kind is FaultKind.ALONE_WITH_WITNESS:
        return int(share * ALONE_US_MAX)
    if kind is FaultKind.CLOCK_JUMP:
        return int((share - 0.5) * 60_000_000)
    return int(share * 1_000_000)


def select_faults(plan: Sequence[Fault], numbers: frozenset[int] | None) -> tuple[Fault, ...]:
    """Return the faults with those numbers, in order; all faults for ``None``."""
    return tuple(fault for fault in plan if numbers is None or fault.number in numbers)
