"""The tutorial of Spark does what it says: its commands and programs run as written, and print what it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.test_client_docs import BLOCK, as_shown, program_of

TUTORIAL = Path(__file__).resolve().parents[2] / "docs/tutorial/spark.md"
RUN_S = 500.0
ON_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}


def shell(folder: Path, script: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", f"set -eu\n{script}"],
        cwd=folder,
        env={**os.environ, **ON_LOOPBACK, "PATH": path},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]


def test_the_tutorial_runs_as_written_and_prints_what_it_shows(tmp_path: Path) -> None:
    blocks = BLOCK.findall(TUTORIAL.read_text())
    *before, after = [body for kind, body in blocks if kind == "sh"]
    shown = [
        (body, expected if next_kind == "text" else "")
        for (kind, body), (next_kind, expected) in zip(blocks, [*blocks[1:], ("", "")], strict=True)
        if kind == "python"
    ]
    assert len(shown) >= 7 and sum(bool(expected) for _, expected in shown) >= 6
    (tmp_path / "program.py").write_text(program_of(shown))
    try:
        shell(tmp_path, "\n".join([*before, "python program.py > printed"]))
    finally:
        shell(tmp_path, after)
    as_shown(shown, (tmp_path / "printed").read_text())
