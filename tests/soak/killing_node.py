"""``python -m stelae``, but a node kills a process at a named step, as a file orders.

The steps are the crash points of copies and deletions (``CrashPoints``), the requests that a master sends to tablet
servers, and what the leader of a tablet does by itself: it gives a new member its vote, and asks a successor to take
over. The file of ``STELAE_KILL_ORDER`` has a JSON object: the name of a step, the victim, the process id of each node,
and the uuid of a node that was about to start when the order was given. The victim is the uuid of a node, ``self``, or
``source``: the server that the replica comes from, as far as the step concerns it, or the one that is asked if that
server does not run. Whichever node is first at the step carries the order out with SIGKILL, once. A file beside that of
the order then has the uuid of the node that is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from stelae.cli.main import main
from stelae.host.metadata_files import CrashPoints
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.replica import Replica
from stelae.lifecycle.blocking_steps import Steps
from stelae.lifecycle.copy_source import ChosenSource
from stelae.protocol.actions import ChangeConfig, ConfigChange
from stelae.server.master.core.events import Send
from stelae.server.master.driver.master import Master
from stelae.spi.consensus import Outbound, Role
from stelae.spi.copy_plan import CopyOffer
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.log import Entry
from stelae.spi.members import Member, MemberType, TabletConfig

ORDER = Path(os.environ["STELAE_KILL_ORDER"])
CLAIMED, DONE = ORDER.with_suffix(".claimed"), ORDER.with_suffix(".done")

HANDOVER = "TimeoutNow"
"""Name of the message by which a leader asks its successor to campaign."""


def passed(step: str, *sources: NodeId) -> None:
    """Carry the order out if it is for this step. ``sources``: the first of them that runs is killed as the source."""
    try:
        order = json.loads(ORDER.read_text())
        if order["step"] != step:
            return
        ORDER.rename(CLAIMED)  # Only one node succeeds.
    except (FileNotFoundError, ValueError):
        return
    victims = (*sources, "self") if order["victim"] == "source" else (order["victim"],)
    pids = {**order["pids"], "self": os.getpid()}
    pid = next(pids[victim] for victim in victims if pids[victim] is not None)
    CLAIMED.write_text(next((node for node, known in order["pids"].items() if known == pid), order["starting"]))
    CLAIMED.rename(DONE)
    os.kill(pid, signal.SIGKILL)


# -- copies and deletions ----------------------------------------------------------------------------

_begin = ChosenSource.begin
_asked: list[NodeId] = []
"""The source that this node asked last for a copy."""


def _begin_noted(self: ChosenSource, source: Member, *, as_export: bool = False) -> Steps[CopyOffer]:
    _asked[:] = [source.node_id]
    return (yield from _begin(self, source, as_export=as_export))


def _hit(self: CrashPoints, point: str) -> None:
    passed(point, *(_asked if point.startswith("copy.") else ()))


# -- requests of masters -----------------------------------------------------------------------------

_send = Master._send


def _send_between_steps(self: Master, effect: Send) -> None:
    action = effect.action
    kind, sources = type(action).__name__, [action.node_id]  # A leader, or the server whose replica is deleted.
    if isinstance(action, ChangeConfig):
        kind = action.change
        if kind is ConfigChange.REMOVE:
            sources.insert(0, action.member)
    passed(f"master.before.{kind}", *sources)
    _send(self, effect)
    passed(f"master.after.{kind}", *sources)


# -- what leaders do by themselves -------------------------------------------------------------------

_note_status = Replica._note_status
_send_to_peer = PeerTraffic.send


def _note_status_between_steps(self: Replica) -> None:
    before = self.status
    _note_status(self)
    after = self.status
    if after.role is Role.LEADER and _promotes(before.config, after.config):
        passed("leader.after_promotion")  # The entry may not be durable yet.
    if after.role is Role.LEADER and _promotes(before.committed_config, after.committed_config):
        passed("leader.after_promotion_committed")


def _promotes(before: TabletConfig, after: TabletConfig) -> bool:
    """Whether a member gets its vote by a change of the config."""
    if before.op_id == after.op_id:
        return False
    former = {member.node_id: member.member_type for member in before.members}
    return any(
        member.member_type is MemberType.VOTER and former.get(member.node_id) is MemberType.PRE_VOTER
        for member in after.members
    )


def _send_to_peer_between_steps(
    self: PeerTraffic, tablet_id: TabletId, outbound: Outbound, entries: Sequence[Entry]
) -> None:
    hands_over = type(outbound.message).__name__ == HANDOVER
    if hands_over:
        passed("leader.before_handover")
    _send_to_peer(self, tablet_id, outbound, entries)
    if hands_over:
        passed("leader.after_handover")


ChosenSource.begin = _begin_noted  # type: ignore[method-assign]
CrashPoints.hit = _hit  # type: ignore[method-assign]
Master._send = _send_between_steps  # type: ignore[method-assign]
PeerTraffic.send = _send_to_peer_between_steps  # type: ignore[method-assign]
Replica._note_status = _note_status_between_steps  # type: ignore[method-assign]
sys.argv = ["stelae", *(word for word in sys.argv[1:] if word not in ("-m", "stelae"))]
main()
