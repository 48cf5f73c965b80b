"""The list of masters that a tablet server keeps: it is read back, shown, and never in the way of a start."""

from __future__ import annotations

import pytest

from stelae.cli.fs_dump import dump_files
from stelae.lifecycle.masters_file import StoredMasters, load_masters, save_masters
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import Member, TabletConfig
from tests.unit.lifecycle.disk_node import LAYOUT
from tests.unit.lifecycle.test_copy_stage import disk

MASTERS = StoredMasters(
    1_700_000_000_000_000, TabletConfig(op_id=OpId(3, 9), members=(Member(node_id=NodeId("a" * 32), address="a:1"),))
)


def test_a_stored_list_is_read_back_and_shown() -> None:
    place = disk()
    assert load_masters(place, LAYOUT) is None
    save_masters(place, LAYOUT, MASTERS)
    assert load_masters(place, LAYOUT) == MASTERS
    (found,) = dump_files(place, LAYOUT.masters, directory=False)
    assert found["kind"] == "masters" and found["record"]["config"]["members"][0]["address"] == "a:1"
    assert LAYOUT.masters in [one["path"] for one in dump_files(place, LAYOUT.root, directory=True)]


@pytest.mark.parametrize("content", [b"", b"STma", b"STin and more of that, enough for a header", b"\xff" * 64])
def test_a_list_that_cannot_be_read_is_as_none_and_is_replaced_by_the_next(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    place = disk()
    place.replace(LAYOUT.masters, content)
    assert load_masters(place, LAYOUT) is None and "that of node.toml is used" in caplog.text
    save_masters(place, LAYOUT, MASTERS)
    assert load_masters(place, LAYOUT) == MASTERS
