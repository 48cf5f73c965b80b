"""Power is lost at any call that the process makes, recorded and replayed: what a superblock says is there."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from stelae.spi.errors import StorageError
from stelae.testing.conformance.wal_native import not_proven
from stelae.testing.recorder.record import METHODS, Recording, available_method, record
from stelae.testing.recorder.replay import states
from stelae.testing.recorder.state_checker import child_environment
from tests.conformance.lmdb_living import STEPS, Superblock, log, model, opened
from tests.conformance.lmdb_store import checks_here


def recorded(root: Path, *bugs: str) -> Recording:
    """Let a child live, and record what it writes and syncs."""
    if available_method() is None:
        not_proven("power loss", f"none of {', '.join(METHODS)} is available to record what the store writes")
    below = os.path.realpath(root / "0")
    os.makedirs(f"{below}/data")
    command = [sys.executable, "-m", "tests.conformance.lmdb_living", below, f"{root}/marks", *bugs]
    return record(command, child_environment(), below, f"{root}/marks", frozenset({"lock.mdb"}))


def judge(recording: Recording, folder: Path) -> int:
    """Open the store in every state that a loss of power may leave; return how many there were."""
    entries, expected, judged = log(), model(), 0
    for state in states(recording, seed=1):
        root = folder / "state"
        state.image.write(str(root))
        block = Superblock.load(str(root))
        assert state.stage.done <= block.flushed.index <= state.stage.done + state.stage.begun
        store = opened(str(root))
        assert store.applied == block.flushed
        assert store.checksum() == expected.checksum(10 * block.flushed.index), state.calls
        store.apply(entries[block.flushed.index :])
        store.flush()
        assert store.checksum() == expected.checksum(), state.calls
        store.close()
        shutil.rmtree(root)
        judged += 1
    return judged


def test_power_lost_at_any_call_leaves_what_the_superblock_says(tmp_path: Path) -> None:
    recording = recorded(tmp_path)
    with checks_here():
        assert judge(recording, tmp_path) > 20 * STEPS


@pytest.mark.parametrize("bug", ["without_sync", "without_meta_sync", "without_names"])
def test_it_is_noticed_if_something_is_not_synced(tmp_path: Path, bug: str) -> None:
    recording = recorded(tmp_path, f"tests.conformance.lmdb_disk:{bug}")
    with checks_here(), pytest.raises((AssertionError, StorageError)):
        judge(recording, tmp_path)
