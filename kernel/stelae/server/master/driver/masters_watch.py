"""Tracks the current masters, and answers requests for their list: from clients, new masters and removed masters.

A master knows the masters from the committed config of its own log. That may be old: a master that was removed gets no
more entries, and one that joins has no log yet. So a master that hears no leader asks the other masters it knows for
their view. The newest config wins. A removed master goes on to answer, so an address that somebody has kept still
leads to the present masters.

A list may name masters of another cluster by mistake. Their configs do not compare with those of this one, also if both
have one id: the creation on record in the catalog tells them apart."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from stelae.host.ports import Timer
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import decode, encode
from stelae.protocol.masters_messages import MASTERS, MastersRequest, MastersView
from stelae.server.frames import only_frame
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.driver.ports import IncomingRequest, MasterNode, PendingCall, SystemReplica, leader_known_to
from stelae.server.masters_answer import masters_in
from stelae.spi.errors import NotLeader
from stelae.spi.members import Member, TabletConfig
from stelae.spi.recovery_epoch import recovery_epoch

log = logging.getLogger(__name__)

LOOK_US = 1_000_000
"""How often a master looks whether it hears a leader, and asks the others if it does not."""

CALL_MS = 900
"""Deadline of one question; shorter than the interval, so that answers do not pile up."""


class MastersWatch:
    """The masters as one master knows them.

    Args:
        listed: the masters in ``node.toml``: for the first contact.
        catalog: returns the catalog once it is loaded.
        looked: called at each look, after the questions are sent.
    """

    def __init__(
        self,
        node: MasterNode,
        listed: Sequence[Member],
        catalog: Callable[[], Catalog | None],
        looked: Callable[[], None],
    ) -> None:
        self._node = node
        self._listed = listed
        self._catalog = catalog
        self._looked = looked
        self._heard: MastersView | None = None
        self._cluster_created_us = 0
        self._told_removed = False
        self._timer: Timer | None = None

    def start(self) -> None:
        """Answer requests, and start the periodic check."""
        self._node.messenger.serve(MASTERS, self._answer)
        self._wait()

    def stop(self) -> None:
        """Stop the periodic check."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def config(self) -> TabletConfig | None:
        """The newest committed config of the masters that this master knows; ``None`` if it knows none."""
        return self._newest[0]

    @property
    def _newest(self) -> tuple[TabletConfig | None, int]:
        """The newest config, and the creation of its cluster."""
        own, created = self._own, self._creation()
        heard = self._heard
        if heard is None or not self._is_of_this_cluster(heard):
            return own, created
        if own is None or (heard.config is not None and heard.config.op_id > own.op_id):
            return heard.config, heard.cluster_created_us
        return own, created

    @property
    def _own(self) -> TabletConfig | None:
        """The config of the own log; ``None`` without one."""
        replica = self._replica()
        own = None if replica is None else replica.status.committed_config
        return own if own is not None and own.members else None

    def _is_of_this_cluster(self, view: MastersView) -> bool:
        """Whether a view is of the cluster on record here. A master that waits to join has none, and takes any."""
        created, replica = self._creation(), self._replica()
        if not created and replica is not None and not replica.failure and self._own and self._catalog() is None:
            return False  # The catalog is being loaded.
        return created in (0, view.cluster_created_us)

    def _creation(self) -> int:
        """Return when the cluster on record here was created, also once the replica has failed; 0 if none was yet."""
        if (catalog := self._catalog()) is not None:
            self._cluster_created_us = catalog.cluster_created_us
        return self._cluster_created_us

    @property
    def removed(self) -> bool:
        """Whether this node has a replica of the system tablet, and the newest config does not list it.

        It was a master, or it has a copy from before it was added. A replica that was just created, and gets its config
        with the log, lists no masters."""
        replica, config = self._replica(), self.config
        if replica is None or not replica.status.config.members or config is None:
            return False
        return config.member(self._node.node_id) is None

    def check_present(self) -> None:
        """Raise ``NotLeader`` with the addresses of the present masters if this one was removed, or not added yet.

        It gets no entries, so its catalog only grows older."""
        config = self.config
        if self.removed and config is not None:
            masters = ", ".join(member.address for member in config.members)
            fact = f"{self._absence(config)}: config {config.op_id} has the masters {masters}"
            raise NotLeader(self.view().leader, fact)

    def _absence(self, config: TabletConfig) -> str:
        return "this master was removed" if self._was_member(config) else "this master was not added yet"

    def _was_member(self, config: TabletConfig) -> bool:
        """Whether this node was a master once. An offline copy fills a directory before its node is a master."""
        own, node_id = self._own, self._node.node_id
        configs = [config] if own is None else [config, own]
        return any(one.member(node_id) is not None or node_id in one.former_voters for one in configs)

    def view(self) -> MastersView:
        """Return what this master answers."""
        replica = self._replica()
        leader = None if replica is None else leader_known_to(replica)
        heard = self._heard
        if leader is None and heard is not None and self._is_of_this_cluster(heard):
            leader = heard.leader
        config, created = self._newest
        return MastersView(
            node_id=self._node.node_id,
            config=config,
            leader=leader,
            removed=self.removed,
            cluster_created_us=created,
            hearsay=created != self._creation(),
        )

    def _replica(self) -> SystemReplica | None:
        return self._node.replicas.get(SYSTEM_TABLET)

    def _answer(self, request: IncomingRequest) -> None:
        decode(only_frame(request), MastersRequest)
        request.reply([encode(self.view())])

    # -- asking ----------------------------------------------------------------------------------

    def _wait(self) -> None:
        turns = self._node.turns
        self._timer = turns.call_at(turns.now_us() + LOOK_US, self._look)

    def _look(self) -> None:
        self._wait()
        replica = self._replica()
        if replica is None or leader_known_to(replica) is None:
            self._ask()
        self._tell_removal()
        self._looked()

    def _ask(self) -> None:
        node, config = self._node, self.config
        known = {m.node_id: m.address for m in (*self._listed, *(config.members if config is not None else ()))}
        known.pop(node.node_id, None)
        for master, address in known.items():
            node.messenger.add_peer(master, address)
            call = node.messenger.call(master, MASTERS, [encode(MastersRequest())], deadline_ms=CALL_MS)
            call.add_done_callback(self._heard_from)

    def _heard_from(self, call: PendingCall) -> None:
        view, heard = masters_in(call), self._heard
        if view is None or view.config is None or not view.config.members or not self._is_of_this_cluster(view):
            return
        known = None if heard is None or not self._is_of_this_cluster(heard) else heard.config
        if known is None or view.config.op_id >= known.op_id:
            self._heard = view

    def _tell_removal(self) -> None:
        """Say once in the log that this master was removed, or not added yet, and what to do."""
        removed, config = self.removed, self.config
        if removed and not self._told_removed and config is not None:
            masters = ", ".join(member.address for member in config.members)
            log.warning(
                "%s: config %s has the masters %s. It does not serve the catalog. %s",
                self._absence(config),
                config.op_id,
                masters,
                self._next_step(config),
            )
        self._told_removed = removed

    def _next_step(self, config: TabletConfig) -> str:
        """Return what to do with this master, which the config does not list.

        One that a recovery has left behind may have committed entries that the survivor never had. Its replica would
        fail as soon as it follows the recovered log."""
        replica = self._replica()
        own = config if replica is None else replica.status.committed_config
        if recovery_epoch(own.op_id.term) == recovery_epoch(config.op_id.term):
            if not self._was_member(config):
                return f"To let it join, run: stelae master add {self._node.address}, or stelae master replace"
            return "Stop it, or add it again with: stelae master add"
        return (
            "The masters were recovered without it. Stop it. To use its machine again, format a new directory under a "
            "new uuid, start that, and run: stelae master add"
        )
