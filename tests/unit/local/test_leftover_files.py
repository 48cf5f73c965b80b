"""Leftovers in the directory of a stopped node: which of them are orphans, and what the next start removes."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.cli.node_formatting import format_here
from stelae.local import leftover_files
from stelae.local.cluster import ClusterOptions
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.leftover_files import OVERDUE_S, FilesNotChecked, LeftoverFile, leftovers, orphan_files, unexpected
from stelae.local.node_process import NodeProcess

DUE_S = 1_000.0


def leftover(kind: str, *, by: str | None = "the running node", due: bool = False, size_bytes: int = 5) -> LeftoverFile:
    when = "1970-01-01T00:16:40Z" if due else None
    return LeftoverFile(kind=kind, path="x", tablet_id="t", size_bytes=size_bytes, why="why", cleaned_by=by, due=when)


@pytest.mark.parametrize("kind", ["STAGE", "QUARANTINE"])
def test_what_is_kept_until_it_is_too_old_is_an_orphan_long_after_that(kind: str) -> None:
    one = leftover(kind, due=True)
    assert unexpected([one], DUE_S + OVERDUE_S) == []
    assert unexpected([one], DUE_S + OVERDUE_S + 1) == [one]


def test_the_file_of_an_interrupted_replacement_is_no_orphan() -> None:
    assert unexpected([leftover("TEMPORARY")], DUE_S) == []


def test_the_empty_directory_of_a_process_that_served_copies_is_no_orphan() -> None:
    assert unexpected([leftover("SERVED", size_bytes=0)], DUE_S) == []


@pytest.mark.parametrize(
    "one",
    [
        leftover("ROWS", by=None),
        leftover("STAGE", by=None, due=True),
        leftover("TEMPORARY", by=None),
        leftover("LOG"),
        leftover("STAGE"),
        leftover("SERVED"),
    ],
    ids=str,
)
def test_what_nobody_removes_and_what_no_age_removes_is_not_expected(one: LeftoverFile) -> None:
    assert unexpected([one], 0.0) == [one]


@pytest.fixture
def node(tmp_path: Path) -> NodeProcess:
    """A formatted tablet server that does not run."""
    made = ClusterWithMasters.create(tmp_path / "c", ClusterOptions(node_count=1), masters=1, formatted=format_here)
    return made.servers[0]


def test_the_command_lists_what_lies_in_the_directory(node: NodeProcess) -> None:
    assert leftovers(node) == []
    stray = node.directory / "data" / "quarantine" / "notes"
    stray.write_text("somebody's notes")
    (one,) = leftovers(node)
    assert (one.kind, one.path, one.cleaned_by) == ("FOREIGN", "quarantine/notes", None)
    assert unexpected([one], 0.0) == [one] and "removed by no process" in str(one)


def test_a_replica_that_would_not_start_is_an_orphan(node: NodeProcess) -> None:
    """Only the list of leftovers was read, and such a replica was not in it: its rows and its log stayed for ever."""
    (node.directory / "data" / "tablet-meta" / "t").write_bytes(b"spoiled")
    (one,) = leftovers(node)
    assert (one.kind, one.tablet_id) == ("FAILED", "t") and "superblock cannot be read" in one.why
    assert unexpected([one], 0.0) == [one]


def test_a_directory_that_cannot_be_checked_is_no_clean_one(node: NodeProcess) -> None:
    node.config_path.write_text("[nodes]\n")
    with pytest.raises(FilesNotChecked, match="nodes"):
        orphan_files(node)


def test_what_the_next_start_removes_is_no_orphan(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was stopped in the middle of a deletion."""
    told = [[leftover("LOG", by="the next start of the node")], []]
    monkeypatch.setattr(leftover_files, "leftovers", lambda node: told.pop(0))
    started = count_starts(node, monkeypatch)
    assert orphan_files(node) == [] and len(started) == 1


def test_what_is_left_after_the_next_start_is_an_orphan(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = leftover("LOG", by="the next start of the node")
    monkeypatch.setattr(leftover_files, "leftovers", lambda node: [lost])
    started = count_starts(node, monkeypatch)
    assert orphan_files(node) == [lost] and len(started) == 1


def count_starts(node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the node start without a process."""
    started: list[str] = []
    monkeypatch.setattr(node, "start", lambda: started.append(node.name))
    monkeypatch.setattr(leftover_files, "_listens", lambda node: True)
    return started
