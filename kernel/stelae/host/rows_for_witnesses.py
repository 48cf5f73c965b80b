"""The part of a leader that lets members without rows copy them (durability rule 12).

Source: the appendix of "Raft config change", t=4 to t=5. A replica without rows votes and keeps the log, so the copy
can take its time. The leader asks such members again and again. If a voter that was demoted returns before that, its
rows are nearly complete: it can have its vote back, and the copy is cancelled."""

from collections.abc import Callable

from stelae.host.start_copy import CancelRows, StartCopy, copy_rows
from stelae.host.superblock import Superblock
from stelae.spi.consensus import Role, Status
from stelae.spi.ids import NodeId, OpId
from stelae.spi.members import MemberType

ASK_US = 2_000_000
"""How often a member is asked to copy the rows, or told that it need not."""


class RowsForWitnesses:
    """Asks the members of one tablet while this node leads it.

    Args:
        start: sends the message that starts a copy to a member.
        cancel: sends the message that cancels it.
    """

    def __init__(
        self, start: Callable[[NodeId, StartCopy], None], cancel: Callable[[NodeId, CancelRows], None]
    ) -> None:
        self._start = start
        self._cancel = cancel
        self._next_us: dict[NodeId, int] = {}

    def consider(self, status: Status, block: Superblock, log_base: OpId, now_us: int) -> None:
        """Ask, or cancel, where it is due. Cheap if every member has its rows."""
        if not status.peers:
            return
        without = [peer.node_id for peer in status.peers if peer.log_only and peer.state == "REPLICATE"]
        if not without or block.log_only or status.role is not Role.LEADER:
            return
        returned = _returned_voter(status)
        for node in without:
            member = status.config.member(node)
            # A PRE_WITNESS gets its vote first. Its rows take longer.
            if member is None or member.member_type is MemberType.PRE_WITNESS or now_us < self._next_us.get(node, 0):
                continue
            self._next_us[node] = now_us + ASK_US
            if returned is not None:
                why = f"node {returned} is back, which was a voter; change its role to VOTER"
                self._cancel(node, CancelRows(tablet_id=block.tablet_id, term=status.term, why=why))
            elif (asked := copy_rows(node, block, status, log_base)) is not None:
                self._start(node, asked)


def _returned_voter(status: Status) -> NodeId | None:
    """Return a member that was a voter, has rows, and follows this leader; ``None`` if there is none."""
    following = {peer.node_id for peer in status.peers if peer.state == "REPLICATE" and not peer.log_only}
    was_voter = (m.node_id for m in status.config.members if m.was_voter is True)
    return next((node for node in was_voter if node in following), None)
