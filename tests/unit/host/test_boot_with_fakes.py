"""The kernel proper is enough to run a node: no server, no configuration, no plugin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "boot_with_fakes.py"


def test_a_node_boots_and_applies_a_write_with_spi_wire_host_and_fakes_alone() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "errors": [0],
        "rows": [[7]],
        "copy_threads": 7,
        "crashed": "None",
        "packages": ["stelae", "stelae.host", "stelae.spi", "stelae.wire"],
    }
