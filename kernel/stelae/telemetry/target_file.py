"""The target file with the address of a node's metrics, for the file-based service discovery of Prometheus.

With the path of these files in ``file_sd_configs``, or a glob for all nodes of a machine, Prometheus needs no port. The
file is written when the node begins to serve, and removed when the node stops. After a crash it is stale until the next
start, and a scrape of the address fails, as it should for a dead node."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

TARGET_FILE = "metrics-target.json"
"""The name of the file in the node's directory."""


def write_target(directory: str, address: str, labels: dict[str, str]) -> None:
    """Write the file with ``address``, atomically. It is not synced: nothing durable depends on it."""
    path = Path(directory) / TARGET_FILE
    temporary = path.with_name(f".{TARGET_FILE}.tmp")
    temporary.write_text(json.dumps([{"targets": [address], "labels": labels}], indent=2) + "\n")
    os.replace(temporary, path)


def remove_target(directory: str) -> None:
    """Remove the file, if there is one."""
    with suppress(OSError):
        (Path(directory) / TARGET_FILE).unlink()


def read_target(directory: str) -> str | None:
    """Return the address in the target file of a directory; ``None`` if there is no valid file."""
    try:
        found = json.loads((Path(directory) / TARGET_FILE).read_text())[0]["targets"][0]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None
