"""The part of a simulated node that production's reads need: its clock, its turns and a virtual pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from stelae.host.hybrid_clock import ClockSettings, HybridClock
from stelae.sim.process import Process, VirtualPool


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings that a read needs."""

    clock: ClockSettings = field(default_factory=ClockSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimReadNode:
    """A ``LookupNode`` and a ``scan_time.ReadNode``.

    Attributes:
        time: the clock of the node.
        turns: the turns of its process.
        scans: runs the reads of lookups that open files.
    """

    time: HybridClock
    turns: Process
    scans: VirtualPool
    config: ReadSettings = field(default_factory=ReadSettings)
