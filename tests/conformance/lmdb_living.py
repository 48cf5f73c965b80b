"""A process that lives with the store ``lmdb``: ``python -m tests.conformance.lmdb_living ROOT MARKS``.

As with the kernel, each step applies an entry, flushes, makes a superblock durable and commits; some raise the floor,
compact, or stop cleanly and start again. A mark is a line in the file ``MARKS``: ``begin N`` and ``done N`` around each
step. Further arguments are functions to call first, as ``module:name``: tests plant bugs so."""

from __future__ import annotations

import os
import random
import sys
from types import SimpleNamespace
from typing import Any

import msgspec

from stelae.machine.files import RealFiles
from stelae.spi.ids import ZERO, OpId
from stelae.spi.store import ApplyEntry
from stelae.testing.conformance.store_apply import random_ops
from stelae.testing.conformance.store_harness import SCHEMA, payload, upsert
from stelae.testing.conformance.store_model import Op, StoreModel
from stelae.testing.recorder.scenario import named
from stelae_store_lmdb import LmdbStore
from tests.conformance.lmdb_store import checks_here, tiny

STEPS = 5
FLOOR_AT, RESTART_AT = 3, 2  #: Steps before which the floor rises, or the process stops cleanly.


class Superblock(msgspec.Struct, frozen=True):
    """What the kernel keeps of a store."""

    flushed: OpId = ZERO
    manifest: bytes = b""
    floor: int = 0

    @classmethod
    def load(cls, root: str) -> Superblock:
        """Read it; an empty one if there is none."""
        files, path = RealFiles(), f"{root}/superblock"
        return msgspec.msgpack.decode(files.read_bytes(path), type=cls) if files.exists(path) else cls()

    def save(self, root: str) -> None:
        """Make it durable."""
        RealFiles().replace(f"{root}/superblock", msgspec.msgpack.encode(self))


def log() -> list[ApplyEntry]:
    """The entries of all steps; some rows are long."""
    return [ApplyEntry(OpId(1, n), 10 * n, payload(SCHEMA, ops)) for n, ops in enumerate(_all_ops(), 1)]


def model() -> StoreModel:
    """What they make of the rows."""
    found = StoreModel(SCHEMA)
    for number, ops in enumerate(_all_ops(), 1):
        found.apply(10 * number, ops)
    return found


def opened(root: str) -> LmdbStore:
    """Open the store that a superblock describes."""
    block = Superblock.load(root)
    services: Any = SimpleNamespace(files=RealFiles())
    return LmdbStore.open(f"{root}/data/t", block.manifest, block.flushed, {1: SCHEMA}, tiny(), services)


def live(root: str, marks: str) -> None:
    """Do all steps."""
    lines = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    store = opened(root)
    for number, entry in enumerate(log()):
        os.write(lines, b"begin %d\n" % number)
        if number == RESTART_AT:
            store.close()
            store = opened(root)
        store.apply([entry])
        edit = store.flush()
        assert edit is not None
        Superblock(edit.flushed, edit.manifest, 0).save(root)
        store.commit(edit)
        if number == FLOOR_AT:
            store.set_history_floor(10 * number)
            while (edit := store.compact()) is not None:
                Superblock(edit.flushed, edit.manifest, 0).save(root)
                store.commit(edit)
        os.write(lines, b"done %d\n" % number)
    store.close()
    os.close(lines)


def _all_ops() -> list[list[Op]]:
    rng = random.Random(5)
    return [[*random_ops(rng), upsert((n, "x" * 700 * n, n), (n + 20, "y", n))] for n in range(STEPS)]


if __name__ == "__main__":
    for bug in sys.argv[3:]:
        named(bug)()
    with checks_here():
        live(sys.argv[1], sys.argv[2])
