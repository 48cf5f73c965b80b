"""The file that says where a node's metrics are: a target file of Prometheus' file-based service discovery.

So ``file_sd_configs`` with the path of these files, a glob for all nodes of a machine, needs no port by hand. It is
written when the node serves, and removed when it stops in an orderly way; after a crash it is stale until the next
start, and a scrape of it fails, as that of a dead node should."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

TARGET_FILE = "metrics-target.json"
"""Its name, in the node's directory."""


def write_target(directory: str, address: str, labels: dict[str, str]) -> None:
    """Say that metrics are at ``address``; a reader never sees half of it. Nothing durable depends on it."""
    path = Path(directory) / TARGET_FILE
    temporary = path.with_name(f".{TARGET_FILE}.tmp")
    temporary.write_text(json.dumps([{"targets": [address], "labels": labels}], indent=2) + "\n")
    os.replace(temporary, path)


def remove_target(directory: str) -> None:
    """Say that there are none any more."""
    with suppress(OSError):
        (Path(directory) / TARGET_FILE).unlink()


def read_target(directory: str) -> str | None:
    """Return where the node of a directory said that its metrics are, if it did."""
    try:
        found = json.loads((Path(directory) / TARGET_FILE).read_text())[0]["targets"][0]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None
