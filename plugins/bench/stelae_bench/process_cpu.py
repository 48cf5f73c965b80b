"""The processor time of another process, where the system has ``/proc`` as Linux does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def cpu_seconds(pid: int, proc: Path = Path("/proc")) -> float | None:
    """Return the processor time of all threads of a process, in seconds; ``None`` if it is not known."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name of the program, in brackets, may contain spaces and brackets. Its state is the first field after that.
    fields = text.rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def spent(before: Sequence[float | None], after: Sequence[float | None]) -> float | None:
    """Return the processor time of processes between two moments, in seconds; ``None`` if one is not known."""
    pairs = [(one, other) for one, other in zip(before, after, strict=True) if one is not None and other is not None]
    return sum((other - one for one, other in pairs), 0.0) if len(pairs) == len(before) else None
