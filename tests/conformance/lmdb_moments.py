"""Every moment at which a process of the store ``lmdb`` may die, and what has to come out of each.

A transaction of LMDB happens whole or not at all, so there is one moment behind each; and one behind each step of the
kernel: the edit is proposed, the superblock is durable, the store has taken note. At each the directory is copied as
it is, together with the manifest that was durable then."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stelae.spi.ids import OpId
from stelae.spi.write import RowCode
from stelae.testing.conformance.store_apply import random_ops
from stelae.testing.conformance.store_harness import SCHEMA, faults_of, upsert
from stelae.testing.conformance.store_model import StoreModel
from stelae_store_lmdb.environment import Environment
from tests.conformance.lmdb_store import LmdbHarness, LmdbReplica


@dataclass
class Moment:
    """What there is on the disk, and in the superblock."""

    directory: Path
    manifest: bytes
    flushed: OpId
    entries: int
    floor: int


@dataclass
class Life:
    """A replica that lives beside a model, and the moments of it."""

    replica: LmdbReplica
    rng: random.Random
    model: StoreModel = field(default_factory=lambda: StoreModel(SCHEMA))
    faults: list[list[tuple[int, RowCode]]] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    floor: int = 0

    def write(self) -> None:
        """Apply one entry; a few of them write nearly all rows anew."""
        ops = random_ops(self.rng, keys=20)
        if self.rng.random() < 0.2:
            ops.append(upsert(*((n, "all", n) for n in range(0, 40, 2))))
        self.faults.append(self.replica.write(*ops))
        assert self.faults[-1] == self.model.apply(10 * len(self.replica.log), ops)

    def flush(self) -> None:
        """Flush as the kernel does, with a moment behind each step."""
        store, replica = self.replica.store, self.replica
        edit = store.flush()
        self.note()
        if edit is not None:
            replica.manifest, replica.flushed = edit.manifest, edit.flushed
            self.note()
            store.commit(edit)
            self.note()

    def drop_superseded(self) -> None:
        """Raise the floor, now and then to the present, and compact."""
        self.floor = max(self.floor, 10 * (len(self.replica.log) - int(self.rng.random() * 3)))
        self.replica.store.set_history_floor(self.floor)
        for _ in range(6):
            self.replica.store.compact()

    def note(self) -> None:
        """Copy what there is."""
        replica = self.replica
        target = Path(replica.root) / f"moment-{len(self.moments)}"
        target.mkdir()
        if Path(replica.directory).exists():
            shutil.copytree(replica.directory, target / "t")
        self.moments.append(Moment(target, replica.manifest, replica.flushed, len(replica.log), self.floor))

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Have a moment behind every transaction."""
        inner = Environment.write

        @contextmanager
        def write(env: Environment) -> Iterator[Any]:
            with inner(env) as txn:
                yield txn
            self.note()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Environment, "write", write)
            yield

    def twin(self, moment: Moment) -> LmdbReplica:
        """A replica of what there was at a moment; not opened since."""
        born = self.replica
        twin = LmdbReplica(born.engine, born.config, dict(born.schemas), root=str(moment.directory))
        if (moment.directory / "t").exists():
            shutil.copytree(moment.directory / "t", twin.directory)
        twin.manifest, twin.flushed = moment.manifest, moment.flushed
        twin.log = born.log[: moment.entries]
        return twin

    def check(self, moment: Moment, twin: LmdbReplica | None = None) -> None:
        """Start at a moment and go on: the same rows at every time, and the same answers to what is applied again."""
        log, twin = self.replica.log, twin or self.twin(moment)
        twin.open()
        assert twin.store.applied == moment.flushed
        assert twin.store.checksum() == self.model.checksum(10 * moment.flushed.index)
        found = twin.store.apply(log[moment.flushed.index : moment.entries])
        assert [*map(faults_of, found)] == self.faults[moment.flushed.index : moment.entries], "the answers differ"
        self._compare(twin, moment.entries, moment.floor)
        twin.flush()
        twin.store.set_history_floor(self.floor)
        for _ in range(8):
            twin.compact()
        twin.store.apply(log[moment.entries :])
        twin.crash()
        twin.store.apply(log[moment.entries :])
        self._compare(twin, len(log), self.floor)
        twin.store.close()

    def _compare(self, twin: LmdbReplica, entries: int, floor: int) -> None:
        now = 10 * entries
        assert twin.store.checksum() == self.model.checksum(now)
        for at in range(max(floor, 10), now + 1, 10):
            assert twin.rows(at) == self.model.rows(at), at


def lived(harness: LmdbHarness, seed: int, entries: int = 14) -> Life:
    """A life with flushes, some of which are not committed, and a floor that rises."""
    replica = harness.replica()
    life = Life(replica, random.Random(seed))
    with life.noting():
        for index in range(1, entries + 1):
            life.write()
            if index % 3 == 0:
                life.flush()
            if index % 4 == 0:
                replica.store.flush()  # in vain: the superblock was never written
                life.drop_superseded()
    return life
