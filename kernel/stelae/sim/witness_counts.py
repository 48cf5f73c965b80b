"""Counts what happens to witnesses: how they join, lead as caretakers, hand over, and leave."""

from __future__ import annotations

from stelae.sim.coverage import Coverage
from stelae.sim.handover_watch import HANDOVER
from stelae.sim.invariants import FactListener
from stelae.sim.world import Needs, ObservedNode
from stelae.spi.consensus import Outbound, Role, Status
from stelae.spi.members import MemberType, TabletConfig


class WitnessCounts(FactListener):
    """Counts changes of committed configs and of leaders. It changes nothing in a run."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._committed: TabletConfig | None = None
        self._leader = (0, False)
        """The highest term that had a leader, and whether that was a caretaker."""
        self._asked_term = 0
        """The last term in which a caretaker asked a successor to take over."""

    def on_sent(self, node: ObservedNode, outbound: Outbound, needs: Needs) -> None:
        """Note that a caretaker asks a successor to take over."""
        if node.status is not None and node.status.caretaker and type(outbound.message).__name__ == HANDOVER:
            self._asked_term = outbound.term

    def on_status(self, node: ObservedNode, before: Status | None, status: Status) -> None:
        """Count a new leader, and the changes of a config that is newly committed."""
        if status.role is Role.LEADER and status.term > self._leader[0]:
            self._count_leader(node, status)
        config = status.committed_config
        if config.members and (self._committed is None or config.op_id > self._committed.op_id):
            if self._committed is not None:
                self._count_changes(self._committed, config)
            self._committed = config

    def _count_leader(self, node: ObservedNode, status: Status) -> None:
        term, by_caretaker = self._leader
        self._leader = (status.term, status.caretaker)
        if status.caretaker:
            self._coverage.hit("witness.led" if node.log_only else "witness.led_with_rows")
        elif by_caretaker:
            self._coverage.hit("witness.handed_over" if term == self._asked_term else "witness.replaced")

    def _count_changes(self, before: TabletConfig, after: TabletConfig) -> None:
        now = {member.node_id: member.member_type for member in after.members}
        for member in before.members:
            change = (member.member_type, now.get(member.node_id))
            if (name := _NAMES.get(change)) is not None:
                self._coverage.hit(f"witness.{name}")
            if member.was_voter is True and change[1] is MemberType.VOTER:
                self._coverage.hit("witness.demoted_voter_returned")


_NAMES = {
    (MemberType.PRE_WITNESS, MemberType.WITNESS): "promoted",
    (MemberType.WITNESS, MemberType.VOTER): "became_voter",
    (MemberType.WITNESS, None): "removed",
    (MemberType.PRE_WITNESS, None): "newcomer_removed",
}
"""Changes of one member, from a type to another, or to none if it is removed."""
