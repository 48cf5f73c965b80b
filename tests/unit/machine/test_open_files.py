"""A node may open as many files as the operating system lets it."""

from __future__ import annotations

import subprocess
import sys

LOWERED = """
import resource
from stelae.machine.open_files import raise_open_files_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
assert raise_open_files_limit() == hard, raise_open_files_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
assert raise_open_files_limit() == hard
"""


def test_the_soft_limit_becomes_the_hard_limit() -> None:
    subprocess.run([sys.executable, "-c", LOWERED], check=True, timeout=60)
