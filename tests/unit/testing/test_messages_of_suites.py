"""What the author of a plugin reads when a check of a conformance suite fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ENGINE = """
import pytest
from stelae.spi.ids import OpId
from stelae.testing.conformance.wal import WalBasics
from stelae.testing.wal_harness import RealHarness
from stelae.testing.wal_memory import MemoryWal

class ForgetsTerms(MemoryWal):
    def op_id_at(self, log, index):
        return OpId(0, super().op_id_at(log, index).index)

class TestMine(WalBasics):
    @pytest.fixture
    def harness(self, tmp_path):
        return RealHarness(ForgetsTerms, str(tmp_path))
"""


def test_a_failed_check_shows_the_values_outside_of_this_repository_too(tmp_path: Path) -> None:
    """It said ``AssertionError`` and nothing else: pytest shows values in test modules only, unless it is asked to."""
    (tmp_path / "test_mine.py").write_text(ENGINE)
    check = "test_reads_outside_the_log_are_refused"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line", "-k", check, "test_mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "assert OpId(term=0, index=20) == OpId(term=4, index=20)" in done.stdout
    assert "warning" not in done.stdout
