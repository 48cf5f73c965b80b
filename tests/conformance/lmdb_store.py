"""A replica for the store ``lmdb``: its directory is the machine's, and a crash leaves a copy of it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.spi.schema import Schema
from stelae.spi.store import ApplyEntry, ApplyResult
from stelae.testing.conformance.store_harness import SCHEMA, HarnessReplica, StoreHarness
from stelae_store_lmdb import LmdbStore, opening
from stelae_store_lmdb.check import ChildReport, check
from stelae_store_lmdb.config import LmdbStoreConfig
from tests.conformance.lmdb_disk import LimitedFiles


def tiny() -> LmdbStoreConfig:
    """Steps and transactions of a few rows, so that every check meets many of them."""
    return LmdbStoreConfig(
        map_bytes=1 << 26, file_growth_bytes=1 << 16, reserve_bytes=1 << 16, transaction_bytes=4096, transaction_rows=8
    )


@dataclass(slots=True)
class LmdbReplica(HarnessReplica):
    """A replica on a directory of the machine. To crash, the store goes on with a copy of what its process left.

    With ``committing``, whatever is written is flushed, committed and compacted at once."""

    root: str = ""
    committing: bool = False
    files: LimitedFiles = field(default_factory=LimitedFiles)
    _lives: int = 0

    def open(self) -> None:
        """Open the store from what is durable, in place of the one that was open, if any."""
        if not self.root:
            self.root = tempfile.mkdtemp(prefix="store-lmdb-")
        before = self.directory
        if self._lives:
            self._lives += 1
            Path(self.directory).parent.mkdir()
            if Path(before).exists():
                shutil.copytree(before, self.directory)
            self.store.close()
        else:
            self._lives = 1
            Path(self.directory).parent.mkdir()
        services: Any = SimpleNamespace(files=self.files)
        self.store = self.engine.open(self.directory, self.manifest, self.flushed, self.schemas, self.config, services)

    def crash(self, seed: int = 0) -> None:
        """Lose the process, reopen from what is durable, and apply the log behind it again."""
        self.open()
        assert self.store.applied == self.flushed
        self.store.apply([e for e in self.log if e.op_id > self.store.applied])

    def write(self, *given: Any, **options: Any) -> Any:
        """As the other replicas do."""
        faults = HarnessReplica.write(self, *given, **options)
        if self.committing:
            self.flush()
            self.store.compact()
        return faults

    @property
    def directory(self) -> str:
        """Where the store is now."""
        return f"{self.root}/{self._lives}/t"

    @property
    def data(self) -> Path:
        """The environment's file."""
        return Path(self.directory) / "env" / "data.mdb"


@dataclass(slots=True)
class LmdbHarness(StoreHarness):
    """Makes replicas below one directory."""

    root: str = ""
    committing: bool = False
    _count: int = 0

    def replica(self, schema: Schema = SCHEMA) -> LmdbReplica:
        """A new, empty replica."""
        self._count += 1
        root = Path(self.root) / f"replica-{self._count}"
        root.mkdir()
        config = (self.make_config or self.engine.Config)()
        schemas = {schema.version: schema}
        return LmdbReplica(self.engine, config, schemas, root=str(root), committing=self.committing)


class Restless(LmdbStore):
    """Flushes after every entry, and compacts; nothing of it is ever committed unless the replica does."""

    def apply(self, entries: Sequence[ApplyEntry]) -> list[ApplyResult]:
        results = []
        for entry in entries:
            results += super().apply([entry])
            self.flush()
            self.compact()
        return results


@contextmanager
def checks_here(check_of: Callable[[str], ChildReport] = check) -> Iterator[list[str]]:
    """Run the check in this process: far faster, where what it meets cannot kill. Yields its calls."""
    calls: list[str] = []

    def here(directory: str, seconds_max: int) -> ChildReport:
        calls.append(directory)
        return check_of(directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "check_in_child", here)
        yield calls
