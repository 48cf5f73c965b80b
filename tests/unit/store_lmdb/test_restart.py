"""The store ``lmdb`` under the kernel's own flush: superblock, log, results and environment go together."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import Superblock, SuperblockFile
from stelae.machine.files import RealFiles
from stelae.spi.ids import ZERO, OpId
from stelae.spi.store import ApplyEntry, ApplyResult, Edit
from stelae_store_lmdb import LmdbStore
from stelae_store_lmdb.environment import Environment
from tests.conformance.lmdb_store import checks_here, tiny
from tests.unit.host import test_flush_and_collect
from tests.unit.host.test_flush_and_collect import CLIENT, LOG, SCHEMA, TABLET, Node, digests_of, ids, insert


class Counting(LmdbStore):
    """Notes what it is given to apply."""

    applied_indexes: list[int]

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        self.__dict__.setdefault("applied_indexes", []).extend(entry.op_id.index for entry in entries)
        return super().apply(entries)


class LmdbNode(Node):
    """One replica's log, store and flusher below a directory of the machine."""

    def __init__(self, root: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_flush_and_collect, "LAYOUT", DirectoryLayout(str(root)))
            super().__init__(RealFiles())  # type: ignore[arg-type]
        self.root = root
        self.engines = dataclasses.replace(self.engines, store=Counting, store_config=tiny())

    @contextmanager
    def _here(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(test_flush_and_collect, "LAYOUT", DirectoryLayout(str(self.root)))
            yield

    @classmethod
    def create(cls, root: Path | None = None) -> LmdbNode:
        assert root is not None
        for directory in DirectoryLayout(str(root)).directories():
            Path(directory).mkdir(exist_ok=True)
        node = cls(root)
        node.wal.create(LOG, ZERO)
        node.file.save(Superblock(tablet_id=TABLET, store_engine="lmdb", schemas=(SCHEMA.to_bytes(),)))
        return node

    def recovered(self) -> Any:
        with self._here():
            return super().recovered()

    def run(self, *given: Any) -> Any:
        with self._here(), checks_here():
            flusher = super().run(*given)
        self.store = flusher.applier.store
        return flusher

    def copy(self, target: Path) -> Path:
        shutil.copytree(self.root, target)
        (target / "wals" / "lock").unlink(missing_ok=True)
        return target


def test_a_restart_applies_only_what_was_not_flushed(tmp_path: Path) -> None:
    node = LmdbNode.create(tmp_path / "a")
    node.run(60, frozenset({20, 40}), [])
    assert node.file.load().flushed == OpId(1, 40)
    assert 0 < node.wal.logs()[LOG].base.index <= 40
    with checks_here() as calls:
        store = LmdbNode(node.copy(tmp_path / "b")).recovered().store
    assert len(calls) == 1
    assert isinstance(store, Counting)
    assert store.applied_indexes == [*range(41, 61)]


def test_a_death_behind_any_durable_step_loses_nothing_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = LmdbNode.create(tmp_path / "node")
    moments: list[tuple[Path, int]] = []
    durable: list[int] = []

    def note() -> None:
        moments.append((node.copy(tmp_path / f"moment-{len(moments)}"), max(durable, default=0)))

    def noting(owner: Any, name: str) -> None:
        inner: Callable[..., Any] = getattr(owner, name)

        def behind(*given: Any) -> Any:
            result = inner(*given)
            note()
            return result

        monkeypatch.setattr(owner, name, behind)

    write = Environment.write

    @contextmanager
    def written(env: Environment) -> Iterator[Any]:
        with write(env) as txn:
            yield txn
        note()

    with monkeypatch.context():
        monkeypatch.setattr(Environment, "write", written)
        noting(SuperblockFile, "save")
        noting(LmdbStore, "commit")
        node.run(40, frozenset({9, 18, 30}), durable)
    monkeypatch.undo()
    assert len(moments) >= 12
    with checks_here():
        for root, upto in moments:
            after = LmdbNode(root)
            found = after.recovered()
            present = ids(found)
            assert present == [*range(1, len(present) + 1)]
            assert len(present) >= upto
            assert found.store.applied.index == len(present)
            for index in present:
                answer = found.results.answer(CLIENT, index, *digests_of(insert(index)))
                assert answer is not None and answer.timestamp == index << 12 and not answer.errors
            found.store.close()
            after.run(40, frozenset({35}), [])
            after.store.close()
            assert ids(LmdbNode(after.copy(root.with_name(root.name + "-again"))).recovered()) == [*range(1, 41)]


def test_what_was_flushed_ahead_is_applied_again_for_its_answers(tmp_path: Path) -> None:
    """Entries at or below what is applied have no row errors to give: a store must not say that it is ahead."""
    node = LmdbNode.create(tmp_path / "a")
    node.run(10, frozenset(), [])
    edit: Edit | None = node.store.flush()
    assert edit is not None and edit.flushed == OpId(1, 10)
    with checks_here():
        found = LmdbNode(node.copy(tmp_path / "b")).recovered()
    assert isinstance(found.store, Counting)
    assert found.store.applied_indexes == [*range(1, 11)]
    assert ids(found) == [*range(1, 11)]
