"""The tutorial of Spark does what it says: its programs run as they are written, and print what it shows.

The cluster and the session are those of the other tests. The commands that make files run in a shell; those that start
and stop a cluster, which other tests run, do not."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

TUTORIAL = Path(__file__).resolve().parents[2] / "docs/tutorial/spark.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_tutorial_runs_as_written_and_prints_what_it_shows(
    spark: SparkSession, masters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MASTERS", masters)
    blocks = BLOCK.findall(TUTORIAL.read_text())
    names: dict[str, Any] = {}
    shown = ran = 0
    for (kind, body), (next_kind, expected) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "sh" and "stelae cluster" not in body:
            subprocess.run(["sh", "-eu", "-c", body], check=True)
        if kind != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(body, str(TUTORIAL), "exec"), names)
        ran += 1
        if next_kind == "text":
            assert printed.getvalue() == expected
            shown += 1
    assert names["spark"] is spark, "the tutorial uses the session of the tests"
    assert ran >= 5 and shown >= 4
