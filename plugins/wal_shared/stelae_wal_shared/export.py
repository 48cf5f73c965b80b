"""Setting a log aside: its entries, in a directory of their own that this engine opens like any other.

The directory gets a marker and segments as the node's own has, with this one log in them, so that
whatever reads the one reads the other. A log that is damaged is exported as far as it is whole; a
note says where it is damaged and why."""

from __future__ import annotations

from stelae.spi.errors import StorageError
from stelae.spi.services import Files
from stelae.spi.wal import Append, Failed, WalEngine
from stelae_wal_shared.book import Book
from stelae_wal_shared.reader import read
from stelae_wal_shared.tablet_log import SharedTabletLog

BATCH_BYTES = 4 << 20
DAMAGE_NAME = "damage.txt"


def export_log(book: Book, log: SharedTabletLog, target: WalEngine, directory: str) -> None:
    """Write a log into an open engine, durably. May be repeated after a crash: it begins anew.

    Raises:
        StorageError: it is not complete there.
    """
    if log.name in target.logs():
        target.drop(log.name)
    target.create(log.name, log.base)
    first = log.base.index + 1
    while first <= log.last.index:
        try:
            entries = read(book, log, first, log.last.index + 1, BATCH_BYTES)
        except StorageError:
            if log.damage is None:
                raise
            continue  # It ends earlier now: what is left of it is exported.
        append = Append(entries=tuple(entries), commit_hint=min(log.commit_hint, entries[-1].op_id.index))
        outcome = target.commit({log.name: append}, sync=True)[log.name]
        if isinstance(outcome, Failed):
            raise outcome.error
        first = entries[-1].op_id.index + 1
    if log.damage is not None:
        _note_damage(book.files, log, directory)


def _note_damage(files: Files, log: SharedTabletLog, directory: str) -> None:
    damage = log.damage
    assert damage is not None
    text = f"log {log.name} is damaged behind {damage.last_good}: {damage.path}@{damage.offset}: {damage.detail}\n"
    files.replace(f"{directory}/{DAMAGE_NAME}", text.encode())
