"""Quarantine: what is listed, and what goes when there is too much of it."""

from __future__ import annotations

from stelae.lifecycle.quarantine import About, Quarantined, listed, purge, too_much
from stelae.spi.ids import TabletId
from tests.unit.lifecycle.disk_node import LAYOUT, OTHER, TABLET, DiskNode


def one(name: str, size_bytes: int, deleted_us: int | None) -> Quarantined:
    about = deleted_us and About(tablet_id=TabletId("t"), table_name="", deleted_us=deleted_us, reason="")
    return Quarantined(name=name, about=about or None, size_bytes=size_bytes)


def test_what_is_too_old_goes_and_then_the_oldest_until_the_rest_fits() -> None:
    found = [one("a", 10, 1), one("b", 10, 5), one("c", 10, 9)]
    assert too_much(found, bytes_max=100, deleted_before_us=0) == []
    assert too_much(found, bytes_max=100, deleted_before_us=5) == ["a"]
    assert too_much(found, bytes_max=19, deleted_before_us=5) == ["a", "b"]
    assert too_much(found, bytes_max=0, deleted_before_us=0) == ["a", "b", "c"]


def test_what_cannot_be_read_has_no_age_and_goes_first_for_its_size() -> None:
    found = [one("damaged", 10, None), one("b", 10, 5)]
    assert too_much(found, bytes_max=100, deleted_before_us=5) == []
    assert too_much(found, bytes_max=15, deleted_before_us=0) == ["damaged"]


def test_a_listing_says_when_why_and_how_large_and_a_purge_is_for_good() -> None:
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete()
    (found,) = listed(node.disk, LAYOUT)
    assert found.name == "t.1" and found.about is not None and found.about.deleted_us == 5
    place = f"{LAYOUT.quarantine}/t.1"
    size = sum(len(data) for path, data in node.disk.tree().items() if path.startswith(place))
    assert found.size_bytes == size > 0
    node.disk.damage(f"{place}/about", 30)
    (damaged,) = listed(node.disk, LAYOUT)
    assert damaged.about is None and damaged.size_bytes == size
    purge(node.disk, LAYOUT, ["t.1"])
    assert listed(node.disk, LAYOUT) == []
    assert TABLET not in DiskNode(node.disk.clone()).recovered(), "still a tombstone"
