"""``stelae tablet quarantine`` on the directory of a node that does not run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stelae.cli.kit.name_lookup import UnknownName
from stelae.cli.main import build_app
from stelae.host.directory_layout import DirectoryLayout
from stelae.host.superblock import DataState, SuperblockFile
from stelae.lifecycle.restore_from_quarantine import BackInTime
from stelae.machine.files import RealFiles
from stelae.spi.errors import CallerError, Locked, StorageError
from tests.unit.lifecycle.disk_node import LAYOUT, OTHER, TABLET, DiskNode


def run(*words: str) -> str:
    """What a command prints; its errors are raised."""
    done = CliRunner().invoke(build_app("tablet"), ["tablet", "quarantine", *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def answer(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A node that has deleted one of its two tablets."""
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete()
    node.wal.close()
    for path in DirectoryLayout("/node").directories():
        (tmp_path / path.removeprefix("/")).mkdir(parents=True, exist_ok=True)
    for path, data in node.disk.tree().items():
        target = tmp_path / path.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return str(tmp_path / LAYOUT.root.removeprefix("/"))


def test_what_is_set_aside_is_listed_with_its_tablet_its_age_and_the_reason(directory: str) -> None:
    found = answer("list", directory)
    (one,) = found["quarantine"]
    assert (one["name"], one["tablet_id"], one["why"], one["readable"]) == ("t.1", "t", "test", True)
    assert one["deleted"] == "1970-01-01T00:00:00Z" and one["size_bytes"] == found["size_bytes"] > 0
    printed = run("list", directory)
    assert "t.1" in printed and "1970-01-01T00:00:00Z" in printed and max(map(len, printed.splitlines())) <= 80


def test_what_cannot_be_read_and_what_a_conversion_left_are_listed_as_that(directory: str) -> None:
    place = Path(directory, "quarantine")
    (place / "t.1" / "about").write_bytes(b"nonsense")
    (place / "wals-segmented.1" / "t").mkdir(parents=True)
    found = {one["name"]: one["why"] for one in answer("list", directory)["quarantine"]}
    assert found == {"t.1": "cannot be read", "wals-segmented.1": "old log of a conversion"}
    with pytest.raises(CallerError, match="a log from `stelae wal convert`"):
        run("restore", directory, "--name", "wals-segmented.1")


def test_a_replica_is_restored_and_the_command_says_up_to_where(directory: str) -> None:
    found = answer("restore", directory, "--name", "t.1")
    assert (found["restored"], found["tablet_id"], found["last"], found["generation"]) == ("t.1", "t", "1.9", 2)
    block = SuperblockFile(RealFiles(), DirectoryLayout(directory), TABLET).load()
    assert block.data_state is DataState.READY and Path(directory, "data/t/rows-3").exists()
    assert answer("list", directory)["quarantine"] == []
    with pytest.raises(UnknownName, match=r"no directory in quarantine 't\.1'; there are none"):
        run("restore", directory, "--name", "t.1")


def test_what_is_older_than_the_replica_is_not_restored(directory: str) -> None:
    Path(directory, "quarantine/t.1").rename(Path(directory, "quarantine/t.2"))
    with pytest.raises(BackInTime, match="not of the last deletion"):
        run("restore", directory, "--name", "t.2")
    assert [one["name"] for one in answer("list", directory)["quarantine"]] == ["t.2"]


def test_purging_by_name_by_age_or_all_removes_just_that(directory: str) -> None:
    assert answer("purge", directory, "--older-than-s", "100000000000")["purged"] == []
    assert answer("purge", directory, "--older-than-s", "10")["purged"] == ["t.1"]
    assert answer("purge", directory, "--all")["purged"] == []
    assert not list(Path(directory, "quarantine").iterdir())


def test_a_name_that_is_nearly_right_is_told_and_nothing_is_purged(directory: str) -> None:
    with pytest.raises(UnknownName, match=r"the nearest are: t\.1"):
        run("purge", directory, "--name", "t.2")
    with pytest.raises(UnknownName):
        run("purge", directory, "--name", "../../data")
    assert len(answer("list", directory)["quarantine"]) == 1


def test_a_whole_name_is_not_taken_for_the_beginning_of_another_one(directory: str) -> None:
    """Of a tablet that was deleted often, the tenth deletion was purged in place of the first, which was gone."""
    for number in (10, 20):
        Path(directory, f"quarantine/tablet.{number}").mkdir()
    for name in ("tablet.1", "tablet."):
        with pytest.raises(UnknownName, match="the nearest are: "):
            run("purge", directory, "--name", name)
    with pytest.raises(UnknownName, match="write more letters"):
        run("purge", directory, "--name", "tabl")
    assert answer("purge", directory, "--name", "tablet.10", "--name", "tablet.10")["purged"] == ["tablet.10"]
    assert answer("purge", directory, "--name", "tabl")["purged"] == ["tablet.20"]


@pytest.mark.parametrize("words", [(), ("--all", "--name", "t.1"), ("--all", "--older-than-s", "1")])
def test_a_purge_has_to_say_once_what_it_removes(directory: str, words: tuple[str, ...]) -> None:
    with pytest.raises(CallerError, match="pass exactly one of --name NAME, --older-than-s SECONDS and --all"):
        run("purge", directory, *words)


def test_a_deletion_that_was_cut_short_keeps_what_it_fills(directory: str) -> None:
    log = Path(directory, "wals/t")
    Path(directory, "quarantine/t.1/wals").rename(log)
    with pytest.raises(CallerError, match="start the node once"):
        run("purge", directory, "--all")
    assert len(answer("list", directory)["quarantine"]) == 1


def test_a_node_that_runs_keeps_its_quarantine_to_itself(directory: str) -> None:
    lock = RealFiles().lock(DirectoryLayout(directory).lock)
    try:
        for words in (("purge", directory, "--all"), ("restore", directory, "--name", "t.1")):
            with pytest.raises(Locked):
                run(*words)
        assert len(answer("list", directory)["quarantine"]) == 1, "looking is allowed"
    finally:
        lock.release()


def test_a_directory_that_is_no_node_and_none_at_all_are_told(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="there is no node in this directory"):
        run("list", str(tmp_path / "nothing"))
    with pytest.raises(CallerError, match="pass either the directory"):
        run("list")
