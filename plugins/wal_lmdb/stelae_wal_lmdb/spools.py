"""Files in the engine's directory that mean nothing after a crash."""

from __future__ import annotations

from contextlib import suppress

from stelae.spi.services import Files

SPOOL_PREFIX = "spool."


def spool_path(directory: str, number: int, count: int) -> str:
    """Where a snapshot is written; its name is removed as soon as it is open."""
    return f"{directory}/{SPOOL_PREFIX}{number}.{count}"


def remove_spools(files: Files, directory: str) -> None:
    """Remove snapshots whose process died before it removed their names."""
    for name in files.listdir(directory):
        if name.startswith(SPOOL_PREFIX):
            with suppress(IsADirectoryError):  # That is none of ours.
                files.remove(f"{directory}/{name}")
