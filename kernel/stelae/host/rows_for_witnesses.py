"""The part of a leader that lets members without rows copy them (durability rule 12).

Source: the appendix of "Raft config change", t=4 to t=5. A replica without rows votes and keeps the log, so the copy
can take its time. The leader asks such members again and again. If a voter that was demoted returns before that, its
rows are nearly complete: it can have its vote back, and the copy is cancelled. The leader waits for that for a limited
time only: a voter may have been demoted for good, as one that shall serve reads only."""

import logging
from collections.abc import Callable

from stelae.host.start_copy import CancelCopy, StartCopy, copy_rows
from stelae.host.superblock import Superblock
from stelae.spi.consensus import Role, Status
from stelae.spi.ids import NodeId, OpId, TabletId
from stelae.spi.members import PROMOTED, MemberType, TabletConfig

log = logging.getLogger(__name__)

ASK_US = 2_000_000
"""How often a member gets a request to copy the rows, or a notice that it need not."""

RETURNED_WAIT_US = 600_000_000
"""How long no rows are copied because a voter that was demoted follows the leader: the time to give it the vote back.
It counts once for each demotion and leader, so a member that fails again and again does not extend it."""

_RETURNED = (
    "a demoted voter is back, so the witness copies no rows for a time; change its role to VOTER, or wait "
    "tablet=%s node=%s wait_s=%d"
)


class RowsForWitnesses:
    """Asks the members of one tablet while this node leads it.

    Args:
        start: sends the message that starts a copy to a member.
        cancel: sends the message that cancels it.
    """

    def __init__(
        self, start: Callable[[NodeId, StartCopy], None], cancel: Callable[[NodeId, CancelCopy], None]
    ) -> None:
        self._start = start
        self._cancel = cancel
        self._next_us: dict[NodeId, int] = {}
        self._returned_us: dict[NodeId, int] = {}  # When a demoted voter was first seen to follow this leader.

    def config_changed(self, config: TabletConfig) -> None:
        """Forget the members that were removed."""
        self._next_us = {node: at for node, at in self._next_us.items() if config.member(node) is not None}

    def consider(self, status: Status, block: Superblock, log_base: OpId, now_us: int) -> None:
        """Ask, or cancel, where it is due. Cheap if every member has its rows."""
        if not status.peers:
            return
        without = [peer.node_id for peer in status.peers if peer.log_only and peer.state == "REPLICATE"]
        if not without or block.log_only or status.role is not Role.LEADER:
            return
        returned = self._returned_voter(block.tablet_id, status, now_us)
        for node in without:
            member = status.config.member(node)
            # A PRE_WITNESS gets its vote first. Its rows take longer.
            if member is None or member.member_type is MemberType.PRE_WITNESS or now_us < self._next_us.get(node, 0):
                continue
            self._next_us[node] = now_us + ASK_US
            if returned is not None:
                why = f"node {returned} is back, which was a voter; change its role to VOTER"
                self._cancel(node, CancelCopy(tablet_id=block.tablet_id, term=status.term, why=why))
            elif (asked := copy_rows(node, block, status, log_base)) is not None:
                self._start(node, asked)

    def _returned_voter(self, tablet_id: TabletId, status: Status, now_us: int) -> NodeId | None:
        """Return a member that was a voter, has rows, and follows this leader since a short time; ``None`` if none."""
        # One that was added again as a PRE_VOTER gets its vote by itself.
        demoted = [m.node_id for m in status.config.members if m.was_voter is True and m.member_type not in PROMOTED]
        self._returned_us = {node: at for node, at in self._returned_us.items() if node in demoted}
        following = {peer.node_id for peer in status.peers if peer.state == "REPLICATE" and not peer.log_only}
        waited_for = None
        for node in demoted:
            if node not in following:
                continue
            if node not in self._returned_us:
                self._returned_us[node] = now_us
                log.warning(_RETURNED, tablet_id, node, RETURNED_WAIT_US // 1_000_000)
            if now_us - self._returned_us[node] < RETURNED_WAIT_US:
                waited_for = waited_for or node
        return waited_for
