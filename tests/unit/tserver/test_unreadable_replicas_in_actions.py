"""What masters may do with replicas that did not start, by what is known of them."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.protocol.actions import DeleteReplica, Evicted, Terminal, Unreadable
from stelae.protocol.catalog_names import TabletState
from stelae.server.tserver.actions import ActionService
from stelae.spi.ids import ZERO, NodeId, OpId, TabletId
from stelae.spi.members import TabletConfig

T, NODE = TabletId("t"), NodeId("a" * 32)
SEEN, NOW = OpId(1, 5), OpId(2, 9)
GONE, LOST = Terminal(state=TabletState.REMOVED), Unreadable(config_op_id=NOW)
EVICTED = Evicted(config_op_id=NOW, seen=SEEN)


def deleted(*, lost: bool, known: bool, fence: Terminal | Evicted | Unreadable) -> OpId | str | None:
    """Return the config that the deletion compares with, or the error."""
    configs = {T: TabletConfig(op_id=SEEN, members=())} if known else {}
    source = MagicMock(spec=TabletLoader, unknown_op_ids={T} if lost else set(), failed_configs=configs)
    node = MagicMock(replicas={}, failed_tablets={T: "why"}, tablets=source)
    manager, answers = MagicMock(), list[object]()
    service = ActionService(node, manager, MagicMock(running={}))
    service.act(DeleteReplica(node_id=NODE, tablet_id=T, fence=fence), answers.append)
    if answers:
        return str(answers[0])
    seen: OpId | None = manager.delete.call_args.kwargs["seen"]
    return seen


def test_each_fence_compares_with_what_can_be_read() -> None:
    assert deleted(lost=True, known=False, fence=LOST) == ZERO
    assert deleted(lost=True, known=True, fence=EVICTED) == SEEN
    assert deleted(lost=True, known=False, fence=GONE) is None


@pytest.mark.parametrize(
    ("lost", "known", "fence"), [(True, True, LOST), (False, False, LOST), (True, False, EVICTED)], ids=str
)
def test_a_deletion_whose_fence_does_not_fit_is_refused(lost: bool, known: bool, fence: Evicted | Unreadable) -> None:
    assert "refused" in str(deleted(lost=lost, known=known, fence=fence))
