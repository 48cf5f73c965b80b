"""A node whose disk does not return one segment of the log that all of its tablets share."""

from __future__ import annotations

import pytest

from stelae_wal_shared import SharedWal
from tests.unit.lifecycle.disk_node import LAYOUT, OTHER, TABLET, DiskNode, ids
from tests.unit.unread_pages import UnreadPages


def test_only_the_tablets_that_need_the_unread_segment_stay_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node did not start, for ever, and so none of its tablets did."""
    node = DiskNode.with_rows(TABLET, wal=SharedWal)
    node.wal.close()
    node = DiskNode(node.disk, wal=SharedWal)  # A start begins a new segment.
    node.add_rows(OTHER)
    node.wal.close()
    first, _ = (name for name in node.disk.listdir(LAYOUT.wals) if name.endswith(".seg"))

    unread = UnreadPages(monkeypatch)
    unread.paths = {f"{LAYOUT.wals}/{first}": range(1 << 20)}
    node = DiskNode(node.disk, wal=SharedWal)
    assert set(node.recovered()) == {OTHER}
    reason = node.loader.failed[TABLET]
    assert first in reason and "Input/output error" in reason and "start the node again" in reason
    assert not node.loader.unknown_op_ids, "all that the replica has acknowledged is known"
    node.wal.close()

    unread.paths = {}
    found = DiskNode(node.disk, wal=SharedWal).recovered()
    assert {tablet: ids(one) for tablet, one in found.items()} == {key: list(range(1, 10)) for key in (TABLET, OTHER)}
