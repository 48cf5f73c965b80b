"""A copy of rows stops its witness for a moment. What happens if that fails."""

from __future__ import annotations

from typing import Any

from stelae.spi.errors import StelaeError
from tests.unit.lifecycle.disk_node import TABLET
from tests.unit.lifecycle.test_rows_copy import ask, state, witness, witness_disk


def test_a_replica_that_cannot_be_stopped_properly_is_started_again_as_a_witness() -> None:
    """The error of its store ended the copy where nobody started the replica again: it was gone until a restart."""
    node = witness(witness_disk())
    shut_down = node.manager.shut_down

    def fails(replica: Any) -> Any:
        yield from shut_down(replica)
        raise StelaeError("the store cannot be closed")

    node.manager.shut_down = fails  # type: ignore[method-assign]
    copy = ask(node)
    assert not copy.committed and copy.reason == "the store cannot be closed"
    assert TABLET in node.hosted and node.block().log_only
    assert state(node.disk) == "witness"
