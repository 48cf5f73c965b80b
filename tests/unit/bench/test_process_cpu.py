"""The processor time and the context switches of a process, as the system tells them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from stelae_bench.process_cpu import ProcessUsage, cpu_seconds, switches


def status(proc: Path, thread: int, voluntary: int, involuntary: int) -> None:
    folder = proc / "7" / "task" / str(thread)
    folder.mkdir(parents=True, exist_ok=True)
    lines = f"Name:\tstelae\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{involuntary}\n"
    (folder / "status").write_text(lines)


def test_switches_are_those_of_all_threads_of_both_kinds(tmp_path: Path) -> None:
    status(tmp_path, 7, 100, 5)
    status(tmp_path, 8, 20, 0)
    before = ProcessUsage.of(7, tmp_path)
    assert (before.cpu_s, before.switches) == (None, {7: 105, 8: 20})
    (tmp_path / "7" / "task" / "8" / "status").unlink()
    status(tmp_path, 7, 110, 6)
    status(tmp_path, 9, 3, 1)
    after = ProcessUsage.of(7, tmp_path)
    assert after.switches_since(before) == 11 + 4, "one thread ended, another one began"


def test_a_system_that_does_not_tell_switches_gives_none_and_not_zero(tmp_path: Path) -> None:
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    (tmp_path / "7" / "task" / "7" / "status").write_text("Name:\tstelae\n")
    assert (switches(7, tmp_path), switches(8, tmp_path)) == (None, None)
    usage = ProcessUsage.of(8, tmp_path)
    assert usage.switches_since(usage) is None


def test_the_processor_time_of_a_process_is_what_that_process_says_itself() -> None:
    """Ticks of 10 ms are too coarse for a slot of a hundred milliseconds."""
    script = "import sys, time; sum(range(10**6)); print(time.process_time(), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        said = float(process.stdout.readline())
        seen = cpu_seconds(process.pid)
        assert seen is None or seen >= said - 1 / os.sysconf("SC_CLK_TCK")
        process.stdin.close()
    before = time.process_time()
    own = cpu_seconds(os.getpid())
    assert own is None or own >= before - 1 / os.sysconf("SC_CLK_TCK")
