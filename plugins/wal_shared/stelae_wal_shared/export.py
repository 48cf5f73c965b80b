"""Exports a log that is set aside: writes its entries to a directory that this engine can open.

The directory has a marker and segments like that of the node, with one log in them. So the same code reads both. A
damaged log is exported up to the damage, and a note says where and why it is damaged."""

from __future__ import annotations

from stelae.spi.errors import StorageError
from stelae.spi.services import Files
from stelae.spi.wal import Append, Failed, WalEngine
from stelae_wal_shared.engine_state import EngineState
from stelae_wal_shared.reader import read
from stelae_wal_shared.tablet_log import SharedTabletLog

BATCH_BYTES = 4 << 20
DAMAGE_NAME = "damage.txt"


def export_log(state: EngineState, log: SharedTabletLog, target: WalEngine, directory: str) -> None:
    """Write a log into an open engine, durably. After a crash it may be repeated, and begins anew.

    Raises:
        StorageError: the export is incomplete.
    """
    if log.name in target.logs():
        target.drop(log.name)
    target.create(log.name, log.base)
    first = log.base.index + 1
    while first <= log.last.index:
        try:
            entries = read(state, log, first, log.last.index + 1, BATCH_BYTES)
        except StorageError:
            if log.damage is None:
                raise
            continue  # The log ends earlier now. Export what is left of it.
        append = Append(entries=tuple(entries), commit_hint=min(log.commit_hint, entries[-1].op_id.index))
        outcome = target.commit({log.name: append}, sync=True)[log.name]
        if isinstance(outcome, Failed):
            raise outcome.error
        first = entries[-1].op_id.index + 1
    if log.damage is not None:
        _note_damage(state.files, log, directory)


def _note_damage(files: Files, log: SharedTabletLog, directory: str) -> None:
    damage = log.damage
    assert damage is not None
    text = f"log {log.name} is damaged behind {damage.last_good}: {damage.path}@{damage.offset}: {damage.detail}\n"
    files.replace(f"{directory}/{DAMAGE_NAME}", text.encode())
