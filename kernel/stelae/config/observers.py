"""Calls the observer hooks of plugins when a replica changes."""

from __future__ import annotations

from stelae.config.registry import Registry
from stelae.spi.consensus import Status
from stelae.spi.hooks import LeaderChanged, TabletStateChanged
from stelae.spi.ids import TabletId


class HookObserver:
    """A ``ReplicaObserver`` that calls ``stelae_leader_changed`` and ``stelae_tablet_state_changed``.

    The registry catches what a hook raises and logs it. The replica goes on.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def status_changed(self, tablet_id: TabletId, before: Status, after: Status) -> None:
        """Report a change of role, term, leader or readiness."""
        if before.leader != after.leader:
            self._registry.leader_changed(LeaderChanged(tablet_id=tablet_id, term=after.term, leader=after.leader))
        if before.serving != after.serving:
            self._registry.tablet_state_changed(
                TabletStateChanged(tablet_id=tablet_id, before=_state(before), after=_state(after))
            )

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        """Report a replica that is FAILED."""
        self._registry.tablet_state_changed(
            TabletStateChanged(tablet_id=tablet_id, before=before, after="FAILED", reason=reason)
        )


def _state(status: Status) -> str:
    return "RUNNING" if status.serving else "CONFIGURING"
