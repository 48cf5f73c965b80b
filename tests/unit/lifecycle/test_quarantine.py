"""Quarantine: what is list_quarantine, and what goes when there is too much of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, format_directory
from stelae.lifecycle.quarantine import (
    DeletionRecord,
    Quarantined,
    QuarantineSettings,
    allowed_bytes,
    list_quarantine,
    make_directory,
    names_to_purge,
    purge,
    save_record,
    tablet_of,
)
from stelae.lifecycle.stage_limits import list_stages
from stelae.machine.files import RealFiles
from stelae.spi.errors import BadIdentifier
from stelae.spi.ids import TabletId
from tests.unit.lifecycle.disk_node import LAYOUT, NODE, OTHER, TABLET, DiskNode


def one(name: str, size_bytes: int, deleted_us: int | None) -> Quarantined:
    about = deleted_us and DeletionRecord(tablet_id=TabletId("t"), table_name="", deleted_us=deleted_us, reason="")
    return Quarantined(name=name, about=about or None, size_bytes=size_bytes)


def test_what_is_too_old_goes_and_then_the_oldest_until_the_rest_fits() -> None:
    found = [one("a", 10, 1), one("b", 10, 5), one("c", 10, 9)]
    assert names_to_purge(found, bytes_max=100, deleted_before_us=0) == []
    assert names_to_purge(found, bytes_max=100, deleted_before_us=5) == ["a"]
    assert names_to_purge(found, bytes_max=19, deleted_before_us=5) == ["a", "b"]
    assert names_to_purge(found, bytes_max=0, deleted_before_us=0) == ["a", "b", "c"]


def test_what_cannot_be_read_has_no_age_and_goes_first_for_its_size() -> None:
    found = [one("damaged", 10, None), one("b", 10, 5)]
    assert names_to_purge(found, bytes_max=100, deleted_before_us=5) == []
    assert names_to_purge(found, bytes_max=15, deleted_before_us=0) == ["damaged"]


def test_a_listing_says_when_why_and_how_large_and_a_purge_is_for_good() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete()
    (found,) = list_quarantine(node.disk, LAYOUT)
    assert found.name == "t.1" and found.about is not None and found.about.deleted_us == 5
    place = f"{LAYOUT.quarantine}/t.1"
    size = sum(len(data) for path, data in node.disk.tree().items() if path.startswith(place))
    assert found.size_bytes == size > 0
    node.disk.damage(f"{place}/about", 30)
    (damaged,) = list_quarantine(node.disk, LAYOUT)
    assert damaged.about is None and damaged.size_bytes == size
    purge(node.disk, LAYOUT, ["t.1"])
    assert list_quarantine(node.disk, LAYOUT) == []
    assert TABLET not in DiskNode(node.disk.clone()).recovered(), "still a tombstone"


@pytest.mark.parametrize(("free_bytes", "allowed"), [(100, 20), (50, 20), (45, 15), (0, 0)])
def test_a_disk_that_fills_takes_from_what_may_stay(free_bytes: int, allowed: int) -> None:
    settings = QuarantineSettings(bytes_max=20, free_bytes_min=50)
    assert allowed_bytes([one("a", 10, 1), one("b", 10, 5)], settings, free_bytes) == allowed


def test_a_log_that_a_conversion_has_set_aside_is_no_deletion_and_survives_a_start() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    place = f"{LAYOUT.quarantine}/wals-segmented.1"
    node.disk.make_directory(f"{place}/t")
    node.disk.replace(f"{place}/t/1.log", b"entries")
    node.disk.make_directory(f"{LAYOUT.quarantine}/t.1")
    found = {one.name: (one.of_deletion, one.about) for one in list_quarantine(node.disk, LAYOUT)}
    assert found == {"wals-segmented.1": (False, None), "t.1": (True, None)}
    again = DiskNode(node.disk.clone())
    again.recovered()
    assert [one.name for one in list_quarantine(again.disk, LAYOUT)] == ["wals-segmented.1"], (
        "an unfinished deletion goes"
    )


@pytest.mark.parametrize("name", ["t", "t.", "t.x", ".1", "a/b.1", ""])
def test_a_name_that_no_deletion_gives_is_refused(name: str) -> None:
    with pytest.raises(BadIdentifier):
        tablet_of(name)


def test_a_foreign_file_hides_neither_the_quarantine_nor_the_stages(tmp_path: Path) -> None:
    """Neither was kept within its limits as long as such a file was there."""
    files, layout = RealFiles(), DirectoryLayout(str(tmp_path / "node"))
    format_directory(files, layout, Instance(node_id=NODE, cluster_id=None, wal_engine="segmented"))
    about = DeletionRecord(tablet_id=TABLET, table_name="", deleted_us=5, reason="test")
    save_record(files, f"{layout.root}/{make_directory(files, layout, TABLET)}", about)
    files.replace(f"{layout.quarantine}/dump.1", b"dump")
    files.replace(f"{layout.copying}/dump", b"dump")
    files.make_directory(layout.stage_of(TABLET))
    assert [(one.name, one.about) for one in list_quarantine(files, layout)] == [("dump.1", None), ("t.1", about)]
    assert [(one.tablet_id, one.used_us, one.size_bytes) for one in list_stages(files, layout)] == [(TABLET, None, 0)]
