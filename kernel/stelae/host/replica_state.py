"""The run states of a replica, and what the log of a node says about the changes of its status."""

from enum import StrEnum

from stelae.spi.consensus import Role, Status
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import TabletConfig

STATUS_CHANGED = (
    "replica tablet=%s role=%s->%s term=%s->%s leader=%s->%s serving=%s->%s config=%s->%s committed_config=%s->%s"
)
"""The log line of a change: the tablet, then each part of ``visible_state`` before and after."""


class ReplicaState(StrEnum):
    """The run state of a replica (seed "consensus", *Peers in the config*)."""

    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    FAILED = "FAILED"


def visible_state(status: Status) -> tuple[Role, int, NodeId | None, bool, OpId, OpId]:
    configs = status.config.op_id, status.committed_config.op_id
    return (status.role, status.term, status.leader, status.serving, *configs)


def member_difference(before: TabletConfig, after: TabletConfig) -> str:
    """Return what changed between two configs, for a log line, as in ``+<node>:PRE_VOTER -<node>``."""
    old = {m.node_id: (m.member_type, m.address) for m in before.members}
    new = {m.node_id: (m.member_type, m.address) for m in after.members}
    gone = [f"-{node}" for node in old if node not in new]
    changed = [f"+{node}:{new[node][0]}" for node in new if old.get(node) != new[node]]
    return " ".join((*gone, *changed)) or "same members"
