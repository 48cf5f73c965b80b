"""The file in which a tablet server keeps the newest config of the masters that it knows.

A server that starts finds the masters by it, also when no master that its ``node.toml`` lists is left (ADR 80). The
file is replaced atomically. Without it, or if it cannot be read, the list in ``node.toml`` is used: the masters then
answer with the newest config again, so nothing is lost."""

from __future__ import annotations

import logging

import msgspec

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.metadata_files import FileKind, load, save
from stelae.spi.errors import StelaeError
from stelae.spi.members import TabletConfig
from stelae.spi.services import Files

log = logging.getLogger(__name__)

MASTERS_FILE = FileKind("masters", b"STma", 1, msgspec.msgpack.Decoder(TabletConfig))


def load_masters(files: Files, layout: DirectoryLayout) -> TabletConfig | None:
    """Return the stored config of the masters; ``None`` if there is none, or it cannot be read. May block."""
    if not files.exists(layout.masters):
        return None
    try:
        return load(files, MASTERS_FILE, layout.masters)
    except (StelaeError, OSError) as error:
        log.warning("the stored list of masters cannot be read, that of node.toml is used: %s", error)
        return None


def save_masters(files: Files, layout: DirectoryLayout, config: TabletConfig) -> None:
    """Store the config of the masters. Durable on return. May block. Raises ``StorageError``."""
    save(files, MASTERS_FILE, layout.masters, config)
