"""The steps of a change at which a fault can strike a master, and the armed fault.

A change is one of the catalog, which a client asks for, or of the members of a tablet, which the policy plans."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from stelae.protocol.actions import ChangeConfig, ConfigChange, DeleteReplica, Evicted, ServerAction
from stelae.protocol.master_heartbeats import Heartbeat
from stelae.server.master.core.catalog import Catalog
from stelae.spi.members import TabletConfig


class ChangeStep(StrEnum):
    """A step of a master on the path of a change: of the catalog (``stelae.server.master.core.operations``), or of the
    members of a tablet."""

    PLANNED = "planned"  #: The change is planned and not passed to the log yet.
    REPLICATED = "replicated"  #: The change is passed to the log, and its outcome is unknown.
    APPLIED = "applied"  #: The change is committed and applied, before answers and actions are sent.
    ANSWERED = "answered"  #: The client has its answer, and no action is sent yet.
    ACTED = "acted"  #: One action is sent, others are not.

    ADD_SENT = "add_sent"  #: The leader of a tablet was asked to add a member.
    REMOVE_SENT = "remove_sent"  #: The leader of a tablet was asked to remove a member.
    CONFIG_HEARD = "config_heard"  #: A heartbeat had a newer config of a tablet than the catalog.
    CONFIG_RECORDED = "config_recorded"  #: A newer config of a tablet is in the catalog.
    EVICTED_SENT = "evicted_sent"  #: The server of a removed member was asked to delete its replica.


OF_MEMBERS = (
    ChangeStep.ADD_SENT,
    ChangeStep.REMOVE_SENT,
    ChangeStep.CONFIG_HEARD,
    ChangeStep.CONFIG_RECORDED,
    ChangeStep.EVICTED_SENT,
)
"""The steps of a replacement: of a change of the members of a tablet."""

OF_CATALOG = tuple(step for step in ChangeStep if step not in OF_MEMBERS)
"""The steps of a change of the catalog."""


def sent_step(action: ServerAction) -> ChangeStep | None:
    """Return the step of a change of members that a master takes by sending an action; ``None``: none of them."""
    if isinstance(action, ChangeConfig):
        return {ConfigChange.ADD: ChangeStep.ADD_SENT, ConfigChange.REMOVE: ChangeStep.REMOVE_SENT}.get(action.change)
    return ChangeStep.EVICTED_SENT if isinstance(action, DeleteReplica) and isinstance(action.fence, Evicted) else None


def hears_config(catalog: Catalog, heartbeat: Heartbeat) -> bool:
    """Return whether a heartbeat has a newer committed config of a tablet than the catalog."""
    replicas = () if heartbeat.report is None else heartbeat.report.replicas
    records = ((catalog.tablets.get(replica.tablet_id), replica.config) for replica in replicas)
    return any(record is not None and _newer(config, record.config) for record, config in records)


def records_config(before: Catalog, after: Catalog) -> bool:
    """Return whether a catalog has a newer config of a tablet than the one before it."""
    found = ((before.tablets.get(tablet_id), record.config) for tablet_id, record in after.tablets.items())
    return any(old is not None and _newer(config, old.config) for old, config in found)


def _newer(config: TabletConfig | None, than: TabletConfig | None) -> bool:
    return config is not None and than is not None and config.op_id > than.op_id


class Strike:
    """Runs an action once, at a given pass of a step."""

    def __init__(self) -> None:
        self._step: ChangeStep | None = None
        self._left = 0
        self._action: Callable[[], None] = lambda: None

    def arm(self, step: ChangeStep, passes: int, action: Callable[[], None]) -> None:
        """Run ``action`` at the given pass of ``step``, counted from now. It replaces an action that is armed."""
        self._step, self._left, self._action = step, passes, action

    def pass_step(self, step: ChangeStep) -> None:
        """Report that a step is passed. The armed action may end the process of the master."""
        if step is not self._step:
            return
        self._left -= 1
        if self._left <= 0:
            self._step = None
            self._action()
