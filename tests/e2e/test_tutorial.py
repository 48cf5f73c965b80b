"""The tutorial does what it says: its blocks are run as they stand, on ports that are free."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stelae.local.ports import free_ports

TUTORIAL = Path(__file__).resolve().parents[2] / "docs/tutorial/first-cluster.md"
TIMEOUT_S = 120
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORTS = ("7051", "7052", "7053")


def blocks() -> tuple[str, str]:
    """The shell commands of the page as one script, and the program that it asks to be saved."""
    text = TUTORIAL.read_text()
    # The loop builds each port from the number of the node: spell that out first.
    text = text.replace("127.0.0.1:705$n", "127.0.0.1:$(echo 7051 7052 7053 | cut -d' ' -f$n)")
    for port, free in zip(PORTS, free_ports(len(PORTS)), strict=True):
        text = text.replace(port, str(free))
    found = BLOCK.findall(text)
    shell = "\n".join(body for kind, body in found if kind == "sh")
    (program,) = [body for kind, body in found if kind == "python"]
    return f"set -eu\n{shell}", program


def test_the_tutorial_runs_as_written_and_no_row_is_lost(tmp_path: Path) -> None:
    script, program = blocks()
    (tmp_path / "write.py").write_text(program)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = shell.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"not done after {TIMEOUT_S} s\n{logs(tmp_path)}")
    finally:
        end_all_of(shell)
    assert shell.returncode == 0, f"{errors}\n{logs(tmp_path)}"
    lines = output.splitlines()
    assert "14400 rows acknowledged" in lines
    assert "14400" in lines, output


def end_all_of(shell: subprocess.Popen[str]) -> None:
    """End whatever the script left running; it has a process group of its own."""
    try:
        os.killpg(shell.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    shell.wait()


def logs(directory: Path, pattern: str = "node*/log") -> str:
    """The last lines of each node's log."""
    found = sorted(directory.glob(pattern))
    return "\n".join(f"{p}:\n{p.read_text()[-3000:]}" for p in found)
