"""A copy that is cut in the middle of an item fetches no byte twice, counted at the sources (T7; rule 21).

The transport, the stage and the states of the copy are the real ones. With a window of one chunk, every byte that a
source has served is stored before the cut, so each must be served exactly once. With more chunks under way, only those
may be lost with the process of the target."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from stelae.lifecycle import tablet_loader
from stelae.lifecycle.copy_stage import CopyStage
from stelae.spi.ids import NodeId
from stelae_copy_streaming.fetch_planner import FetchPlanner
from tests.unit.lifecycle.copy_node import FOLLOWER, LEADER, CopyNode, KillAt, Killed, check_complete, tombstone_disk
from tests.unit.lifecycle.disk_node import LAYOUT, TABLET
from tests.unit.lifecycle.streamed_network import CHUNK_BYTES, StreamedNetwork
from tests.unit.lifecycle.test_tablet_copy import ADOPTED, SERVED

ITEM = max(SERVED.contents, key=lambda name: len(SERVED.contents[name]))
BEFORE = list(SERVED.contents)[: list(SERVED.contents).index(ITEM)]
CUT = sum(-(-len(SERVED.contents[name]) // CHUNK_BYTES) for name in BEFORE) + 3
"""The copy is cut after this many chunks: three of the largest item."""
CUT_BYTES = sum(len(SERVED.contents[name]) for name in BEFORE) + 3 * CHUNK_BYTES
TOTAL_BYTES = sum(map(len, SERVED.contents.values()))


def sources(window: int = 1) -> StreamedNetwork:
    return StreamedNetwork(SERVED, (LEADER, FOLLOWER), window)


def killed_at_the_cut(network: StreamedNetwork) -> CopyNode:
    """A target whose process ended when the chunk of the cut was stored."""
    node = CopyNode(tombstone_disk(), network, KillAt("copy.after_chunk", CUT))
    with suppress(Killed):
        node.ask()
    stored = node.disk.read_bytes(f"{LAYOUT.stage_of(TABLET)}/{ITEM.replace('/', '/.')}")
    assert stored == SERVED.contents[ITEM][: 3 * CHUNK_BYTES] and len(SERVED.contents[ITEM]) > 6 * CHUNK_BYTES
    return node


def finish(node: CopyNode) -> None:
    assert node.ask_until_end().sequence.committed
    check_complete(node, ADOPTED)


def check_served(network: StreamedNetwork, twice_bytes: int = 0) -> None:
    """Every byte of every item was served, and no more than this many of them more than once."""
    assert set(network.served) == {(name, at) for name, data in SERVED.contents.items() for at in range(len(data))}
    assert sum(network.served.values()) - len(network.served) <= twice_bytes


# -- (a) the target's process ends, and starts again -----------------------------------------------


@pytest.mark.parametrize("window", [1, 4])
def test_after_a_restart_of_the_target_no_byte_is_fetched_twice(window: int) -> None:
    network = sources(window)
    cut = killed_at_the_cut(network)
    network.restart_target()
    finish(CopyNode(cut.disk.clone(), network))
    assert network.by_node[FOLLOWER] == 0
    check_served(network, (window - 1) * CHUNK_BYTES)


def test_after_many_restarts_of_the_target_no_byte_is_fetched_twice() -> None:
    network, disk = sources(), tombstone_disk()
    for _ in range(CUT + 2):  # Each run gets one chunk.
        node = CopyNode(disk, network, KillAt("copy.after_chunk"))
        with suppress(Killed):
            node.ask()
        disk = node.disk.clone()
        network.restart_target()
    assert network.chunks == CUT + 2
    finish(CopyNode(disk, network))
    check_served(network)


# -- (b) the source changes ------------------------------------------------------------------------


def lose_at_the_cut(network: StreamedNetwork, lose: Callable[[NodeId], None]) -> None:
    lost: list[NodeId] = []

    def on_request(chunks: int, node: NodeId) -> None:
        if chunks == CUT and not lost:
            lost.append(node)
            lose(node)

    network.on_request = on_request


@pytest.mark.parametrize("window", [1, 4])
def test_after_a_change_of_the_source_no_byte_is_fetched_twice(window: int) -> None:
    network = sources(window)
    lose_at_the_cut(network, network.gone.add)
    node = CopyNode(tombstone_disk(), network)
    finish(node)
    assert network.by_node[LEADER] == CUT_BYTES and network.by_node[FOLLOWER] == TOTAL_BYTES - CUT_BYTES
    check_served(network)


def test_after_a_restart_of_the_source_no_byte_is_fetched_twice() -> None:
    network = sources()
    lose_at_the_cut(network, network.start)
    finish(CopyNode(tombstone_disk(), network))
    assert network.asked == [LEADER, LEADER] and network.by_node[FOLLOWER] == 0
    check_served(network)


def test_after_a_restart_of_the_target_while_the_source_is_gone_no_byte_is_fetched_twice() -> None:
    network = sources()
    cut = killed_at_the_cut(network)
    network.gone.add(LEADER)
    network.restart_target()
    finish(CopyNode(cut.disk.clone(), network))
    assert network.by_node[LEADER] == CUT_BYTES
    check_served(network)


# -- the tests above fail if the copy begins an item again -----------------------------------------


def forgets_parts(stage: Any, names: set[str]) -> None:
    _keep_only(stage, names)
    place, kind = stage._place, ITEM.partition("/")[0]
    for file in stage._files.listdir(f"{place}/{kind}"):
        if file.startswith("."):
            stage._files.remove(f"{place}/{kind}/{file}")


def distrusts_parts(planner: Any, item: Any, _answer: Any) -> Any:
    return _part_checked(planner, item, None)


_keep_only, _part_checked = CopyStage._keep_only, FetchPlanner._part_checked

BUGS: list[tuple[Any, str, Any]] = [
    (CopyStage, "_keep_only", forgets_parts),
    (FetchPlanner, "_part_checked", distrusts_parts),
    (tablet_loader, "read_manifest", lambda *_arguments: None),
    (CopyStage, "stored", lambda _stage, _item: 0),
]


@pytest.mark.parametrize(("owner", "name", "bug"), BUGS, ids=["parts", "checksum", "stage", "stored"])
def test_a_copy_that_does_not_resume_is_missed(
    owner: Any, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = sources()
    cut = killed_at_the_cut(network)
    monkeypatch.setattr(owner, name, bug)
    network.restart_target()
    finish(CopyNode(cut.disk.clone(), network))
    with pytest.raises(AssertionError):
        check_served(network)


@pytest.mark.parametrize(("owner", "name", "bug"), [BUGS[0], BUGS[1], BUGS[3]], ids=["parts", "checksum", "stored"])
def test_a_copy_that_begins_again_at_another_source_is_missed(
    owner: Any, name: str, bug: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    network = sources()
    lose_at_the_cut(network, network.gone.add)
    finish(CopyNode(tombstone_disk(), network))
    with pytest.raises(AssertionError):
        check_served(network)
