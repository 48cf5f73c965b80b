"""A process that is killed while it removes the name of a log: the next one depends on the name being gone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stelae.machine.files import RealFiles
from stelae.sim.disk import Survival, VirtualDisk
from stelae.spi.errors import StorageError
from stelae.spi.ids import ZERO
from stelae.testing.wal_harness import fake_services
from stelae.testing.wal_model import LOG
from stelae_wal_lmdb import LmdbConfig, LmdbWal

CONFIG = LmdbConfig(map_bytes=1 << 30, file_growth_bytes=1 << 16, reserve_bytes=1 << 16)


class NamesOnAVirtualDisk(RealFiles):
    """The machine's disk, with the names of the logs on a disk that can lose power."""

    def __init__(self, names: VirtualDisk) -> None:
        super().__init__()
        self._names = names

    def __getattribute__(self, name: str) -> Any:
        call = super().__getattribute__(name)
        if name not in ("create", "exists", "listdir", "make_directory", "remove", "sync_directory"):
            return call
        names = super().__getattribute__("_names")

        def routed(path: str) -> Any:
            _, found, below = path.partition("/names")
            return getattr(names, name)(found + below) if found else call(path)

        return routed


class Killed(BaseException):
    """The process ends here."""


def opened(tmp_path: Path, names: VirtualDisk) -> LmdbWal:
    return LmdbWal.open(str(tmp_path / "wals"), CONFIG, fake_services(NamesOnAVirtualDisk(names)))


def test_an_environment_begins_anew_only_once_the_removal_of_the_last_name_is_durable(tmp_path: Path) -> None:
    """The name came back beside the new environment: the log counted as lost, and was set aside again, empty."""
    names = VirtualDisk()
    names.make_directory("/names")
    names.sync_directory("/")
    engine = opened(tmp_path, names)
    engine.create(LOG, ZERO)
    engine._refuse_writes(StorageError("a sync failed"))

    def kill(operation: str, _path: str) -> None:
        if operation == "sync_directory":
            raise Killed

    names.faults.hook = kill
    with pytest.raises(Killed):
        engine.drop(LOG)
    engine._lock.release()  # type: ignore[union-attr]
    left = names.clone()
    again = opened(tmp_path, left)
    assert not again.logs()
    again.close()
    after = opened(tmp_path, left.crash(random.Random(1), Survival.LOST))
    assert not after.logs()
    after.close()
