"""The service of tablets: which replica it finds for a request."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stelae.protocol.tablet_messages import NoSuchTablet
from stelae.server.tserver.tablet_service import replica_of
from stelae.spi.ids import TabletId


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "none"), (2, "t0, t1"), (5, "t0, t1, t2, t3, t4"), (7, "t0, t1, t2, t3, t4, and 2 more")]
)
def test_the_refusal_of_an_unknown_tablet_names_a_few_tablets_of_the_node(count: int, shown: str) -> None:
    """It named all of them, in each answer to each client whose tablet had moved."""
    replicas = {TabletId(f"t{number}"): None for number in reversed(range(count))}
    node: Any = SimpleNamespace(replicas=replicas, failed_tablets={}, tablets=None)
    with pytest.raises(NoSuchTablet) as caught:
        replica_of(node, TabletId("x"))
    assert str(caught.value) == f"no tablet 'x' on this node; it has: {shown}"
