"""The status of a replica that leads and serves."""

from __future__ import annotations

from stelae.spi.consensus import Role, Status
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import TabletConfig


def leader_status(node: NodeId, config: TabletConfig, last: OpId) -> Status:
    """Return the status of the leader of term 2, of whose log everything is durable, committed and applied."""
    return Status(
        node_id=node,
        role=Role.LEADER,
        term=2,
        voted_for=node,
        leader=node,
        last=last,
        durable_index=last.index,
        commit=last.index,
        applied=last.index,
        serving=True,
        config=config,
        committed_config=config,
    )
