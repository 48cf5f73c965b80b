"""Spool files: the files of snapshots, which have no meaning after a crash."""

from __future__ import annotations

from contextlib import suppress

from stelae.spi.services import Files

SPOOL_PREFIX = "spool."


def spool_path(directory: str, number: int, count: int) -> str:
    """Return the path of a snapshot's file. The name is removed as soon as the file is open."""
    return f"{directory}/{SPOOL_PREFIX}{number}.{count}"


def remove_spools(files: Files, directory: str) -> None:
    """Remove the files of snapshots whose process died before it removed their names."""
    for name in files.listdir(directory):
        if name.startswith(SPOOL_PREFIX):
            with suppress(IsADirectoryError):  # The engine did not create it.
                files.remove(f"{directory}/{name}")
