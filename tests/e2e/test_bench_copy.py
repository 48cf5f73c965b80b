"""``stelae bench copy`` as real processes: its document, and that it leaves nothing behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stelae_copy_streaming.config import StreamingConfig
from tests.e2e.in_process import stelae

RUN_S = 600
MIB = 1 << 20
IN_FLIGHT_BYTES_MAX = StreamingConfig().chunks_in_flight * StreamingConfig().chunk_bytes
"""What may be on its way, and is lost, when a process is killed."""


def has(found: dict[str, Any], *names: str) -> bool:
    return all(0 < found[f"{name}_min"] <= found[name] <= found[f"{name}_max"] for name in names)


@pytest.mark.long
def test_every_part_is_measured_and_an_interrupted_copy_moves_only_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stelae", "bench", "copy", "--bytes", "64MiB", "--tablets", "4"]
    command += ["--rounds", "1", "--seconds", "0.5", "--json", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    speed, writes, moved = document["speed"], document["writes"], document["tablets"]
    for name in ("one_source", "two_sources"):
        assert has(speed[name], "mb_per_s", "vs_cp", "seconds")
        assert speed[name]["bytes"] >= 64 * MIB, "everything was copied, and nothing fed from the log"
    assert has(speed["cp"], "mb_per_s")
    assert has(writes["alone"], "ops_per_s") and has(writes["beside_copy"], "ops_per_s") and has(writes, "kept")
    assert document["rows_read"] == document["rows_acked"] > 0
    for killed in ("target_killed", "source_killed"):
        found = document["resume"][killed]
        assert 0.4 * found["bytes"] <= found["bytes_stored"] < found["bytes"]
        assert found["bytes_stored"] > 2 * IN_FLIGHT_BYTES_MAX
        assert found["bytes_twice"] <= IN_FLIGHT_BYTES_MAX, "what was stored is not fetched again"
    assert (moved["tablets"], moved["tablets_per_s"] > 0) == (4, True)
    assert (document["problems"], document["ok"]) == ([], True)
    assert list(tmp_path.iterdir()) == [], "a benchmark leaves nothing on the disk"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--parts", "speed,files"], "known parts: speed, writes, resume, tablets"),
        (["--bytes", "much"], "--bytes must be a number of bytes"),
        (["--bytes", "1k"], "at least 1048576 bytes"),
        (["--tablets", "0"], "--tablets"),
        (["--dir", "nowhere/at/all"], "folder nowhere/at/all does not exist"),
    ],
)
def test_a_wrong_argument_is_refused_before_anything_is_started(arguments: list[str], words: str) -> None:
    done = stelae("bench", "copy", *arguments)
    assert done.exit_code in (1, 2)
    assert words in done.stderr and "starting" not in done.stderr
    assert done.stdout == ""
