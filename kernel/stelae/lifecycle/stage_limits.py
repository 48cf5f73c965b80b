"""Decides which stages of copies are removed, and lists them (``durability.md`` rule 21)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from stelae.host.directory_layout import DirectoryLayout, tablet_names
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.copy_stage import read_manifest
from stelae.lifecycle.directory_size import bytes_below
from stelae.spi.ids import TabletId
from stelae.spi.services import Files


class StoredStage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage on the disk."""

    tablet_id: TabletId
    used_us: int | None  #: Wall-clock microseconds of its last use; ``None`` if its manifest cannot be read.
    size_bytes: int


def list_stages(files: Files, layout: DirectoryLayout) -> list[StoredStage]:
    """Return all stages, the one that was used longest ago first. A file there is none. Blocks."""
    found = []
    for tablet in tablet_names(files, layout.copying):
        try:
            files.listdir(layout.stage_of(tablet))
        except (FileNotFoundError, NotADirectoryError):
            continue
        manifest = read_manifest(files, layout, tablet)
        used_us = None if manifest is None else manifest.used_us
        size_bytes = bytes_below(files, layout.stage_of(tablet))
        found.append(StoredStage(tablet_id=tablet, used_us=used_us, size_bytes=size_bytes))
    return sorted(found, key=lambda stage: (stage.used_us or 0, stage.tablet_id))


def stages_to_remove(
    found: Sequence[StoredStage],
    settings: StageSettings,
    *,
    in_use: Collection[TabletId],
    sound: Collection[TabletId],
    now_us: int,
    free_bytes: int,
) -> list[TabletId]:
    """Return the tablets whose stages are removed. Pure.

    A stage is removed if it is too old, if it is not intact, if the tablet has a sound replica, or, the oldest first,
    until the disk has enough free space.

    Args:
        found: all stages, the oldest first.
        settings: the limits.
        in_use: tablets that are being copied. Their stages stay.
        sound: tablets with a replica on this node that needs no copy: it has rows, and has not failed.
        now_us: wall-clock microseconds.
        free_bytes: the free bytes of the disk.
    """
    names = []
    for stage in found:
        if stage.tablet_id in in_use:
            continue
        old = stage.used_us is None or now_us - stage.used_us > settings.age_s_max * 1_000_000
        if old or stage.tablet_id in sound or free_bytes < settings.free_bytes_min:
            names.append(stage.tablet_id)
            free_bytes += stage.size_bytes
    return names
