"""How far one copy of a tablet, or several together, have come: bytes, rate and remaining time. No input or output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stelae.cli.kit.pace import clock
from stelae.cli.kit.terminal_layout import bytes_text
from stelae.protocol.copy_list_messages import CopyLine, ReportedCopyPhase


@dataclass(frozen=True, slots=True)
class CopyAmount:
    """The progress of copies.

    Attributes:
        bytes_done: bytes that their targets have stored, in earlier runs too; ``None`` without a copy that has begun.
        bytes_total: bytes in all; ``None`` without a copy whose size is known.
        bytes_per_s: the present rate; ``None`` while it is unknown, and while all of them are paused.
        eta_ms: expected time to their end in milliseconds; ``None`` while it is unknown.
    """

    bytes_done: int | None = None
    bytes_total: int | None = None
    bytes_per_s: int | None = None
    eta_ms: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is a copy whose size is known."""
        return self.bytes_total is not None

    def time_ms(self, bytes_left: int) -> int | None:
        """Return how long these bytes take at the present rate; ``None`` if that is unknown."""
        return bytes_left * 1000 // self.bytes_per_s if self.bytes_per_s else None

    def document(self) -> dict[str, Any]:
        """Return the fields for ``--json``. Each is ``None`` while it is unknown."""
        return {
            "bytes_done": self.bytes_done,
            "bytes_total": self.bytes_total,
            "bytes_per_s": self.bytes_per_s,
            "eta_ms": self.eta_ms,
        }

    def __str__(self) -> str:
        """Return such as ``312.0 MiB of 940.0 MiB at 85.0 MiB/s, about 8 s left``; nothing is known: ``begins``."""
        return self.without_end() + left_text(self.eta_ms)

    def without_end(self) -> str:
        """Return the text without the remaining time."""
        if not self.is_known:
            return "begins"
        rate = f" at {bytes_text(self.bytes_per_s)}/s" if self.bytes_per_s else ""
        return f"{bytes_text(self.bytes_done)} of {bytes_text(self.bytes_total)}{rate}"


def amount_of(copies: Iterable[CopyLine]) -> CopyAmount:
    """Return the progress of copies together. Those that have not begun, or do not know their size, are left out."""
    known = [copy for copy in copies if copy.bytes_total and not copy.waits]
    if not known:
        return CopyAmount()
    done, total = sum(copy.bytes_done for copy in known), sum(copy.bytes_total for copy in known)
    rate = sum(_rate(copy) or 0 for copy in known) or None
    return CopyAmount(done, total, rate, _eta_ms(known))


def left_text(eta_ms: int | None) -> str:
    """Return the remaining time as the end of a progress line: nothing if it is unknown."""
    return "" if eta_ms is None else f", about {clock(eta_ms / 1000)} left"


def phase_text(phase: str | None) -> str:
    """Return what a copy still does once it has all bytes, as the end of a text; empty in any other phase."""
    return f", {phase.lower()}" if phase in (ReportedCopyPhase.VERIFYING, ReportedCopyPhase.INSTALLING) else ""


def _rate(copy: CopyLine) -> int | None:
    """Return the rate of a copy in bytes per second. The server tells the time that the remaining bytes take."""
    return (copy.bytes_total - copy.bytes_done) * 1000 // copy.eta_ms if copy.eta_ms else None


def _eta_ms(copies: Iterable[CopyLine]) -> int | None:
    """Return the time to the end of the slowest copy; ``None`` if that of any is unknown."""
    times = [copy.eta_ms for copy in copies]
    return None if None in times else max(time for time in times if time is not None)
