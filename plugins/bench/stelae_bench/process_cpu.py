"""The processor time and the context switches of other processes, where the system tells them, as Linux does."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_CPU_CLOCK = 2
"""The lowest bits of the clock of a process that counts the time on processors, as of ``clock_getcpuclockid``."""


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """What a process has used since its start: processor time, and context switches by thread. ``None``: unknown."""

    cpu_s: float | None
    switches: Mapping[int, int] | None

    @classmethod
    def of(cls, pid: int, proc: Path = PROC) -> ProcessUsage:
        """Return the usage of a process so far."""
        return cls(cpu_seconds(pid, proc), switches(pid, proc))

    def switches_since(self, before: ProcessUsage) -> int | None:
        """Return the switches of the threads that run now, since an earlier usage of the same process."""
        if self.switches is None or before.switches is None:
            return None
        return sum(count - before.switches.get(thread, 0) for thread, count in self.switches.items())


def cpu_seconds(pid: int, proc: Path = PROC) -> float | None:
    """Return the processor time of all threads of a process, in seconds; ``None`` if it is not known.

    Linux has a clock for it with a resolution of nanoseconds. The file ``stat`` counts ticks of 10 ms."""
    if proc == PROC and sys.platform == "linux":
        try:
            return time.clock_gettime(~pid << 3 | _CPU_CLOCK)
        except OSError:
            pass  # Some systems that run the programs of Linux have no such clock.
    try:
        text = (proc / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name of the program, in brackets, may contain spaces and brackets. Its state is the first field after that.
    fields = text.rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def switches(pid: int, proc: Path = PROC) -> dict[int, int] | None:
    """Return the context switches of each thread of a process, voluntary and involuntary; ``None``: they are unknown.

    A thread that ends meanwhile is left out."""
    try:
        threads = [int(name) for name in os.listdir(proc / str(pid) / "task")]
    except OSError:
        return None
    found = {}
    for thread in threads:
        try:
            lines = (proc / str(pid) / "task" / str(thread) / "status").read_text().splitlines()
        except OSError:
            continue
        counts = [int(line.rpartition(":")[2]) for line in lines if "_ctxt_switches:" in line]
        if counts:
            found[thread] = sum(counts)
    return found or None


def spent(before: Sequence[float | None], after: Sequence[float | None]) -> float | None:
    """Return the processor time of processes between two moments, in seconds; ``None`` if one is not known."""
    pairs = [(one, other) for one, other in zip(before, after, strict=True) if one is not None and other is not None]
    return sum((other - one for one, other in pairs), 0.0) if len(pairs) == len(before) else None
