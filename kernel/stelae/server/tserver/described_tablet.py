"""Brings up the tablet that ``[tablet]`` describes, on a node without masters."""

from __future__ import annotations

import logging

from stelae.host.settings import TabletSettings
from stelae.lifecycle.startup_decisions import StartupAction, TabletFinding
from stelae.lifecycle.tablet_loader import TabletLoader
from stelae.protocol.members_text import members_text

log = logging.getLogger(__name__)

_NO_TABLET = (StartupAction.NOTHING, StartupAction.REMOVE, StartupAction.TOMBSTONE, StartupAction.ROLL_FORWARD)
"""What a start does where there is no tablet, or only the tombstone of one."""


class DescribedTabletLoader(TabletLoader):
    """The ``TabletSource`` of a node without masters."""

    def create(self, tablet: TabletSettings) -> bool:
        """Create the configured tablet unless it exists or has failed. Return whether it was created.

        The members of a stored tablet are those of its config, whatever the file lists. A difference is logged, and so
        is a new tablet beside others: perhaps its id is mistyped."""
        found = {one.tablet_id: one for one in self._scan() if one.decision.action not in _NO_TABLET}
        if (own := found.get(tablet.id)) is not None:
            _compare_members(tablet, own)
        elif found:
            log.warning(
                "[tablet] has the new id %s, and the directory %s has tablet %s: another, empty tablet is created; if "
                "the id is mistyped, stop the node and correct it",
                tablet.id,
                self._layout.root,
                ", ".join(found),
            )
        return super().create(tablet)


def _compare_members(tablet: TabletSettings, stored: TabletFinding) -> None:
    """Log the difference between the members in the file and in the committed config. They are compared by uuid."""
    if stored.consensus is None:
        return
    config = stored.consensus.committed_config
    listed = {member.node_id: member.address for member in tablet.members}
    members = {member.node_id: member.address for member in config.members}
    # A replica that was added later has no config at first.
    if members and listed.keys() != members.keys():
        log.warning(
            "[tablet] members lists %s; by config %s the members of tablet %s are %s: the members of the config count; "
            "correct the file; stelae tablet add-replica and remove-replica change the members",
            members_text(listed, members),
            config.op_id,
            tablet.id,
            members_text(members, listed),
        )
