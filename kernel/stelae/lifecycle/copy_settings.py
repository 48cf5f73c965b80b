"""Section ``[stage]``: the limits of copies to this node, and of what they leave for the next attempt."""

from __future__ import annotations

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """Section ``[stage]``."""

    bytes_max: int = setting(
        1 << 40, unit="bytes", low=1 << 20, high=1 << 50, reason="of one tablet; a copy that is larger is refused"
    )
    age_s_max: int = setting(
        86_400,
        unit="s",
        low=0,
        high=31_536_000,
        reason="after a day most of it is not in the snapshot of any source any more",
    )
    free_bytes_min: int = setting(
        2 << 30,
        unit="bytes",
        low=0,
        high=1 << 50,
        reason="with less free space, stages that no copy uses are removed; above that of [quarantine], to be first",
    )
    interval_ms: int = setting(
        60_000, unit="ms", low=50, high=86_400_000, reason="the age limit needs no hurry, but a disk that fills does"
    )
    rounds_max: int = setting(
        8, unit="count", low=0, high=1000, reason="how often a copy asks a source again without any progress"
    )
    pause_ms: int = setting(
        500, unit="ms", low=1, high=60_000, reason="before it asks again: a source that restarts needs a moment"
    )
