"""``stelae fs check`` on the directory of a stopped node: what belongs to no replica, and who removes it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stelae.cli.main import build_app
from stelae.host.directory_layout import DirectoryLayout
from stelae.lifecycle.deletion import write_tombstone
from stelae.lifecycle.quarantine import DeletionRecord
from stelae.machine.files import RealFiles
from stelae.spi.errors import Locked
from stelae.spi.members import MemberType
from tests.unit.cli.stopped_nodes import on_disk
from tests.unit.lifecycle.copy_node import CopyNode, never_disk, tombstone_disk
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, OTHER, TABLET, DiskNode
from tests.unit.lifecycle.test_tablet_copy import network


def check(directory: Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and what was found."""
    done = CliRunner().invoke(build_app("fs"), ["fs", "check", str(directory), "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, json.loads(done.stdout)["leftovers"]


def test_a_node_with_replicas_alone_has_no_leftovers(whole: Path) -> None:
    assert check(whole) == (0, [])
    done = CliRunner().invoke(build_app("fs"), ["fs", "check", str(whole)])
    assert done.exit_code == 0 and "nothing that belongs to no replica" in done.stderr


def test_a_deleted_replica_is_in_quarantine_until_it_is_too_old(tmp_path: Path) -> None:
    code, found = check(on_disk(tombstone_disk(), tmp_path))
    (one,) = found
    assert code == 0 and (one["kind"], one["path"], one["tablet_id"]) == ("QUARANTINE", "quarantine/t.1", TABLET)
    assert one["due"] == "1970-01-08T00:00:00Z" and "age_s_max" in one["cleaned_by"] and one["size_bytes"] > 0


def test_an_interrupted_copy_leaves_a_stage_that_its_age_removes(tmp_path: Path) -> None:
    node = CopyNode(never_disk(), network())
    node.network.on_chunk = lambda _item: _stop(node)
    node.ask_until_end(member_type=MemberType.PRE_VOTER)
    code, found = check(on_disk(node.disk, tmp_path))
    (one,) = found
    assert code == 0 and (one["kind"], one["path"]) == ("STAGE", "copying/t")
    assert "[stage] age_s_max" in one["cleaned_by"] and one["due"] == "1970-01-02T00:00:00Z"


def _stop(node: CopyNode) -> None:
    if len(node.network.fetched) > 2:
        node.copies.cancel(TABLET, "the node stops")


def test_what_a_stage_without_a_manifest_holds_goes_at_the_next_look(whole: Path) -> None:
    (whole / "copying" / "u").mkdir()
    (whole / "copying" / "u" / "part").write_bytes(b"12345")
    code, (one,) = check(whole)
    assert code == 0 and one["size_bytes"] == 5 and "next look" in one["cleaned_by"]


STRAYS = ["data/lost/00000001", "data/no.tablet", "copying/.x", "quarantine/notes", "tablet-meta/.u.tmp"]


@pytest.mark.parametrize("path", STRAYS)
def test_what_nobody_ever_removes_fails_the_check_and_is_named(whole: Path, path: str) -> None:
    target = whole / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"1234567")
    code, (one,) = check(whole)
    assert code == 1 and one["cleaned_by"] is None and one["size_bytes"] == 7
    done = CliRunner().invoke(build_app("fs"), ["fs", "check", str(whole)])
    assert done.exit_code == 1 and f"{whole}/{one['path']}" in done.stderr and target.exists()


@pytest.mark.parametrize("gone", [True, False])
def test_rows_and_log_of_a_replica_whose_superblock_is_lost_or_unreadable_are_listed(whole: Path, gone: bool) -> None:
    """Those of an unreadable one were not, so nobody saw that they stayed for ever."""
    path = whole / "tablet-meta" / TABLET
    path.unlink() if gone else path.write_bytes(b"spoiled")
    code, found = check(whole)
    assert code == 1
    by = "the masters, once the tablet has other members or its table is dropped"
    assert [(one["kind"], one["tablet_id"], one["cleaned_by"]) for one in found] == [
        ("ROWS", TABLET, by),
        ("LOG", TABLET, by),
    ]


def test_a_deletion_that_was_interrupted_is_completed_by_the_next_start(tmp_path: Path) -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    about = DeletionRecord(tablet_id=TABLET, table_name="", deleted_us=5, reason="test")
    write_tombstone(node.disk, LAYOUT, node.block(), LAST, about, node.crash)
    node.wal.close()
    code, found = check(on_disk(node.disk, tmp_path))
    kinds = {one["kind"]: one["cleaned_by"] for one in found}
    assert code == 0 and kinds["ROWS"] == kinds["LOG"] == "the next start of the node"


def test_an_interrupted_replacement_and_what_was_served_are_no_strays(whole: Path) -> None:
    (whole / "tablet-meta" / f".{OTHER}.tmp").write_bytes(b"half")
    (whole / "serving" / "earlier").mkdir(parents=True)
    code, found = check(whole)
    assert code == 0
    assert {one["kind"]: one["cleaned_by"] for one in found} == {
        "TEMPORARY": "the next replacement of that file",
        "SERVED": "the next start of the node",
    }


def test_the_directory_of_a_running_node_is_refused(whole: Path) -> None:
    lock = RealFiles().lock(DirectoryLayout(str(whole)).lock)
    with pytest.raises(Locked):
        check(whole)
    lock.release()


@pytest.mark.parametrize(
    ("path", "reason"), [("tablet-meta", "the superblock cannot be read"), ("wals", "the log is gone")]
)
def test_a_replica_that_would_not_start_fails_the_check(whole: Path, path: str, reason: str) -> None:
    """It passed, although the check could not know what belongs to this replica."""
    if path == "wals":
        shutil.rmtree(whole / path / TABLET)
    else:
        (whole / path / TABLET).write_bytes(b"spoiled")
    done = CliRunner().invoke(build_app("fs"), ["fs", "check", str(whole), "--json"])
    found = json.loads(done.stdout)
    (failed,) = found["failed"]
    assert done.exit_code == 1
    assert failed["tablet_id"] == TABLET and failed["reason"].startswith(reason)
    shown = CliRunner().invoke(build_app("fs"), ["fs", "check", str(whole)])
    assert shown.exit_code == 1 and f"tablet {TABLET} does not start: {reason}" in shown.stderr
