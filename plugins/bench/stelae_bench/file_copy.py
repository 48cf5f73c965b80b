"""Copies the same files with ``cp`` and syncs them: what a copy of a tablet is compared with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from stelae.spi.errors import StelaeError


class FileCopyFailed(StelaeError):
    """``cp`` failed."""

    code = "BENCH_CP_FAILED"


def copy_and_sync(source: Path, target: Path) -> float:
    """Copy a folder with ``cp``, sync every file and folder of the copy, and remove it. Return the seconds.

    Removing is not timed. The files are synced one by one, because a sync of the whole system would also write what
    other programs have changed. ``cp`` must copy the bytes, also where it could share them.

    Args:
        source: a folder.
        target: a path on the same file system that does not exist.

    Raises:
        FileCopyFailed: the files could not be copied.
    """
    real = ["--reflink=never"] if sys.platform == "linux" else []
    began = time.monotonic()
    done = subprocess.run(["cp", "-R", *real, str(source), str(target)], capture_output=True, text=True)
    if done.returncode:
        raise FileCopyFailed(f"cp failed with exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    for path in (*target.rglob("*"), target, target.parent):
        _sync(path)
    seconds = time.monotonic() - began
    shutil.rmtree(target)
    return seconds


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
