"""Describes the machine of a benchmark. Results are meaningless without it."""

from __future__ import annotations

import os
import platform
import timeit
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import zmq

from stelae import __version__
from stelae.machine.fast_log.io_uring import IoUring
from stelae_bench.interpreter import is_optimised


def describe() -> dict[str, Any]:
    """Return processors, memory, system and versions. Unknown values are ``None``.

    ``python_step_ns`` is the shortest time of the interpreter for one step of a small loop of plain Python. Builds of
    one version differ by half and more (with or without profile-guided optimisation), which no version number shows.
    ``python_optimised`` says how it was built."""
    return {
        "cpu_count": _cpu_count(),
        "cpu_model": _cpu_model(Path("/proc/cpuinfo")) or platform.processor() or None,
        "memory_bytes": _memory_bytes(),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_step_ns": _python_step_ns(),
        "python_optimised": is_optimised(),
        "versions": {
            "stelae": __version__,
            "pyzmq": zmq.__version__,
            "libzmq": zmq.zmq_version(),
            "pyarrow": pyarrow.__version__,
            "msgspec": msgspec.__version__,
        },
        "io_uring": _has_io_uring(),
        "load_average_1_min": round(os.getloadavg()[0], 2),
    }


def python_of(machine: Mapping[str, Any]) -> str:
    """Return the interpreter of a description for people, with its speed."""
    return f"Python {machine['python']} ({machine['python_step_ns']:.0f} ns a step)"


def _python_step_ns() -> float:
    steps = 20_000
    return round(min(timeit.repeat(lambda: _steps(steps), number=1, repeat=5)) / steps * 1e9, 1)


def _steps(count: int) -> int:
    """Do what nodes do most: look up, call, add."""
    total, seen = 0, dict.fromkeys(range(64), 1)
    for number in range(count):
        seen[number & 63] += 1
        total += len(str(number)) + seen.get(number & 31, 0)
    return total


def _has_io_uring() -> bool:
    """Say whether nodes on this machine can write their logs by io_uring."""
    try:
        IoUring(1).close()
    except OSError:
        return False
    return True


def _cpu_count() -> int | None:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _cpu_model(cpuinfo: Path) -> str | None:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
