"""The faults of one run as data, drawn at the start: a run is shrunk by leaving some out.

A fault names its victim by position, not by node: ``LEADER`` is whoever leads when it strikes.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from stelae.sim.draw import between, chance, pick, skewed, stream
from stelae.sim.profile import Profile
from stelae.sim.store_profile import NODES as NODES

LEADER = -1
"""As a victim: whoever leads at that moment (the first live node if nobody does)."""


class FaultKind(StrEnum):
    """What can go wrong; each is counted as ``fault.<kind>`` when it bites."""

    CRASH = "crash"
    """Power is lost: un-synced writes are lost, torn or reordered."""
    CRASH_IN_COMMIT = "crash_in_commit"
    """Power is lost at a drawn disk operation or byte."""
    KILL = "kill"
    """The process dies; what it wrote, synced or not, is still there."""
    PAUSE = "pause"
    """The process stands still and goes on later as if nothing had been."""
    PARTITION = "partition"
    """Cut off from both others, both ways."""
    PARTITION_IN = "partition_in"
    """Receives nothing, but is heard."""
    PARTITION_OUT = "partition_out"
    """Hears everything, but is not heard."""
    CUT_LINK = "cut_link"
    """One direction of one link is dead."""
    LOSSY = "lossy"
    """Every link loses a large share of its messages."""
    SLOW_LINKS = "slow_links"
    """Every link is slow and reorders widely."""
    SLOW_DISK = "slow_disk"
    """Syncs of one node take up to a second."""
    DISK_FULL = "disk_full"
    """One node has no space left, later it has again."""
    SYNC_FAILED = "sync_failed"
    """A sync of one node's log fails: that replica is lost for good."""
    DAMAGE = "damage"
    """The process dies, and a bit of a closed log segment is flipped: that replica is lost too."""
    OLDER_LOG = "older_log"
    """The process dies, and an older copy of its log takes the place of the log: that replica is lost too."""
    CLOCK_JUMP = "clock_jump"
    """One node's wall clock jumps, either way, perhaps further than peers accept."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One planned fault.

    Attributes:
        number: its place in the plan; names it on the command line.
        at_us: when it strikes.
        victim: a node's position, or ``LEADER``.
        duration_us: until it is undone (a crashed node starts again).
        amount: by kind: disk operations until the crash, microseconds of the jump, other node.
    """

    number: int
    kind: FaultKind
    at_us: int
    victim: int
    duration_us: int
    amount: int


LASTING = (FaultKind.SYNC_FAILED, FaultKind.DAMAGE, FaultKind.OLDER_LOG)
"""Kinds from which a replica does not come back: nothing replaces it yet."""

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


def draw_plan(seed: int, profile: Profile) -> tuple[Fault, ...]:
    """Return the faults of a seed in order of time.

    At most one of them costs a replica for good: two of three must be left.
    """
    rng = stream(seed, "plan")
    kinds = [pick(rng, _COMMON) for _ in range(profile.faults)]
    if chance(rng, 0.3):
        kinds[between(rng, 0, len(kinds) - 1)] = _lasting(seed, pick(rng, LASTING[:2]))
    drawn = []
    for kind in kinds:
        at_us = between(rng, profile.safety_us // 20, profile.safety_us)
        victim = LEADER if chance(rng, 0.5) else between(rng, 0, NODES - 1)
        duration_us = skewed(rng, 20_000, profile.safety_us // 3)
        drawn.append((at_us, kind, victim, duration_us, _amount(rng.random(), kind)))
    drawn.sort(key=lambda fault: fault[0])
    return tuple(
        Fault(number=n, at_us=a, kind=k, victim=v, duration_us=d, amount=m) for n, (a, k, v, d, m) in enumerate(drawn)
    )


def _lasting(seed: int, kind: FaultKind) -> FaultKind:
    """Draw again between this kind and an older log."""
    return FaultKind.OLDER_LOG if chance(stream(seed, "plan/older"), 0.4) else kind


def _amount(share: float, kind: FaultKind) -> int:
    """Draw what ``Fault.amount`` means for a kind."""
    if kind is FaultKind.CRASH_IN_COMMIT:
        return int(share * 12)
    if kind is FaultKind.CLOCK_JUMP:
        return int((share - 0.5) * 60_000_000)
    return int(share * 1_000_000)


def keep(plan: Sequence[Fault], numbers: frozenset[int] | None) -> tuple[Fault, ...]:
    """Return the faults of those numbers, in order; all of them for ``None``."""
    return tuple(fault for fault in plan if numbers is None or fault.number in numbers)
