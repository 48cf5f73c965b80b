"""No eviction leaves a tablet without a healthy majority."""

from __future__ import annotations

from typing import ClassVar

from stelae.protocol.actions import ChangeConfig, ConfigChange, ServerAction
from stelae.sim.masters.invariants.base import MastersInvariant
from stelae.sim.masters.master import SimMaster


class MajorityStaysHealthy(MastersInvariant):
    """A master asks for the removal of a member only if a majority of the voters that remain is healthy.

    Otherwise the change could not be committed, and the tablet would need a voter that has just been removed. Which
    voters are unhealthy is what the tablet's leader has reported to that master."""

    name: ClassVar[str] = "majority_stays_healthy"
    source: ClassVar[str] = "durability.md rule 28"

    def on_sent(self, master: SimMaster, action: ServerAction) -> None:
        """Check a removal that is meant for the config on record. Another one is refused by its fence."""
        if not isinstance(action, ChangeConfig) or action.change is not ConfigChange.REMOVE:
            return
        view = master.view()
        tablet, leader = view.catalog.tablets.get(action.tablet_id), view.leader_of(action.tablet_id)
        if tablet is None or tablet.config is None or tablet.config.op_id != action.cas or leader is None:
            return
        left = [voter for voter in tablet.config.voters() if voter != action.member]
        unhealthy = [voter for voter in left if voter in leader[1].unhealthy]
        healthy = len(left) - len(unhealthy)
        if healthy <= len(left) // 2:
            fact = f"{master.endpoint.name} asks for the removal of {action.member} from {action.tablet_id}"
            self.fail(f"{fact}, which leaves {healthy} healthy ones of {len(left)} voters; unhealthy: {unhealthy}")
