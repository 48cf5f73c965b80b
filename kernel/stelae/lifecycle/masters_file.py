"""The file in which a tablet server keeps the newest config of the masters that it knows, and of which cluster it is.

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


class StoredMasters(msgspec.Struct, frozen=True):
    """The masters of the cluster of a server."""

    cluster_created_us: int  #: When the cluster was put on record. Two clusters with one id differ in it.
    config: TabletConfig


MASTERS_FILE = FileKind("masters", b"STma", 1, msgspec.msgpack.Decoder(StoredMasters))


def load_masters(files: Files, layout: DirectoryLayout) -> StoredMasters | None:
    """Return the stored masters; ``None`` if there are none, or they cannot be read. May block."""
    if not files.exists(layout.masters):
        return None
    try:
        return load(files, MASTERS_FILE, layout.masters)
    except (StelaeError, OSError) as error:
        log.warning("the stored list of masters cannot be read, that of node.toml is used: %s", error)
        return None


def save_masters(files: Files, layout: DirectoryLayout, masters: StoredMasters) -> None:
    """Store the masters. Durable on return. May block. Raises ``StorageError``."""
    save(files, MASTERS_FILE, layout.masters, masters)
