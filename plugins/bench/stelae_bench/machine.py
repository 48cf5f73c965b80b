"""What a benchmark ran on: without it, its figures mean nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import msgspec
import pyarrow
import zmq

from stelae import __version__


def describe() -> dict[str, Any]:
    """Return processors, memory, system and versions; what cannot be told is ``None``."""
    return {
        "cpu_count": _cpu_count(),
        "cpu_model": _cpu_model(Path("/proc/cpuinfo")) or platform.processor() or None,
        "memory_bytes": _memory_bytes(),
        "system": platform.system(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {
            "stelae": __version__,
            "pyzmq": zmq.__version__,
            "libzmq": zmq.zmq_version(),
            "pyarrow": pyarrow.__version__,
            "msgspec": msgspec.__version__,
        },
        "load_average_1_min": round(os.getloadavg()[0], 2),
    }


def _cpu_count() -> int | None:
    """Processors that this process may use."""
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
