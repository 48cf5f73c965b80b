"""Rules by which a disk fails, and a real disk behind them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from stelae.local.chaos import disk_rules, rules_file
from stelae.local.chaos.disk_rules import DiskFaults
from stelae.machine.faulty_files import FaultyFiles
from stelae.spi.errors import ConfigError, Full, StorageError, SyncFailed


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_file, "LOOK_S", 0.0)


class World:
    """A directory behind rules."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rules_path = root / "rules.json"
        self.faults = DiskFaults(str(self.rules_path), str(root))
        self.files = FaultyFiles(self.faults)

    def rule(self, *rules: dict[str, object]) -> None:
        new = self.root / "new.json"
        new.write_text(json.dumps(rules))
        os.replace(new, self.rules_path)

    def path(self, name: str) -> str:
        return str(self.root / name)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for name in ("wals", "data"):
        (tmp_path / name).mkdir()
    return made


def test_without_a_file_or_with_an_empty_one_nothing_fails(world: World) -> None:
    assert not world.faults.active
    world.files.replace(world.path("wals/a"), b"x")
    world.rule()
    assert not world.faults.active
    assert world.files.read_bytes(world.path("wals/a")) == b"x"


@pytest.mark.parametrize("operation", ["read", "write", "sync", "metadata"])
def test_each_operation_fails_alone_with_the_error_that_a_real_disk_gives(world: World, operation: str) -> None:
    path = world.path("wals/a")
    world.files.replace(path, b"x")
    file = world.files.open(path, writable=True)
    world.rule({"below": "wals", "operations": [operation]})
    acts = {
        "read": (lambda: file.pread(1, 0), StorageError),
        "write": (lambda: file.pwritev([b"y"], 0), SyncFailed),
        "sync": (lambda: file.sync(), SyncFailed),
        "metadata": (lambda: world.files.listdir(world.path("wals")), StorageError),
    }
    for name, (act, kind) in acts.items():
        if name == operation:
            with pytest.raises(kind, match="Input/output error") as raised:
                act()
            assert raised.value.path.startswith(world.path("wals"))
        else:
            act()
    file.close()


def test_a_durable_write_fails_where_only_syncs_do(world: World) -> None:
    file = world.files.create(world.path("wals/a"))
    world.rule({"operations": ["sync"]})
    with pytest.raises(SyncFailed, match="sync failed"):
        file.pwritev([b"y"], 0, dsync=True)
    file.close()


def test_other_directories_are_left_alone_and_rules_can_be_taken_back(world: World) -> None:
    world.rule({"below": "wals"})
    world.files.replace(world.path("data/a"), b"x")
    with pytest.raises(StorageError):
        world.files.replace(world.path("wals/a"), b"x")
    world.rule()
    world.files.replace(world.path("wals/a"), b"x")


def test_no_space_is_full_and_an_operation_can_be_let_pass_first(world: World) -> None:
    file = world.files.create(world.path("wals/a"))
    world.rule({"operations": ["write"], "error": "ENOSPC", "after": 2})
    file.pwritev([b"1"], 0)
    file.pwritev([b"2"], 1)
    with pytest.raises(Full):
        file.pwritev([b"3"], 2)
    file.close()


def test_a_directory_whose_name_begins_alike_is_another_one(world: World) -> None:
    world.rule({"below": "wal"})
    assert world.faults.judge(world.path("wals/a"), "read") == 0
    assert world.faults.judge(world.path("wal/a"), "read") == errno.EIO


@pytest.mark.parametrize("rule", [{"operations": ["reed"]}, {"error": "EWRONG"}, {"belwo": "wals"}])
def test_rules_that_cannot_be_used_are_refused_with_the_known_ones(world: World, rule: dict[str, object]) -> None:
    world.rule(rule)
    with pytest.raises(ConfigError):
        _ = world.faults.active


def test_a_slow_operation_waits_and_does_not_fail(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(disk_rules.time, "sleep", waited.append)
    file = world.files.create(world.path("wals/a"))
    world.rule({"below": "wals", "operations": ["sync"], "delay_ms": 50})
    file.pwritev([b"y"], 0)
    assert waited == []
    file.sync()
    assert waited == [0.05]
    world.files.create(world.path("data/a")).sync()
    assert waited == [0.05]
    file.close()


def test_the_first_rule_that_applies_decides_whether_an_operation_is_slow_or_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(disk_rules.time, "sleep", waited.append)
    file = world.files.create(world.path("wals/a"))
    world.rule({"operations": ["sync"], "delay_ms": 50, "after": 1}, {"operations": ["sync"], "error": "EIO"})
    with pytest.raises(SyncFailed):
        file.sync()
    file.sync()
    assert waited == [0.05]
    file.close()


@pytest.mark.parametrize("delay_ms", [-1, disk_rules.DELAY_MS_MAX + 1])
def test_a_delay_that_is_not_possible_is_refused(world: World, delay_ms: int) -> None:
    world.rule({"delay_ms": delay_ms})
    with pytest.raises(ConfigError, match=f"a rule has a delay of {delay_ms} ms"):
        world.files.exists(world.path("wals"))
