"""How long the disk and apply work of a node takes at the moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stelae.sim.process import DurationRange


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDurations:
    """The current durations of disk and apply work."""

    sync_us: Callable[[], DurationRange]
    metadata_us: Callable[[], DurationRange]
    apply_us: Callable[[], DurationRange]
    read_us: Callable[[], DurationRange]
