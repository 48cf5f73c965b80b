"""Serves requests to add and remove masters: on the leading master, as changes of the system tablet's config.

A new master is asked before anything is appended: a node that does not answer, or must not join, leaves no trace. What
its answer proves is checked again by the rules of all tablets: the leader fills an empty directory only for a member
that never had a vote (ADR 80)."""

from __future__ import annotations

from collections.abc import Callable

from stelae.protocol.cluster_bootstrap_messages import BOOTSTRAP, BootstrapAnswer, BootstrapRequest, BootstrapStage
from stelae.protocol.codec import decode, encode
from stelae.protocol.masters_messages import CHANGE_MASTERS, ChangeMastersRequest
from stelae.protocol.member_messages import ChangeMembersReply
from stelae.server.frames import only_frame
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.master_core import MasterCore
from stelae.server.master.driver.first_start import cluster_created_us
from stelae.server.master.driver.master_comparison import answer_of
from stelae.server.master.driver.ports import IncomingRequest, MasterNode, PendingCall, SystemReplica
from stelae.server.tserver.member_service import check_change
from stelae.spi.consensus import Role
from stelae.spi.errors import (
    CallerError,
    ChangeNotYet,
    MemberChangeRefused,
    NotLeader,
    RetryableError,
    StelaeError,
    Unavailable,
)
from stelae.spi.ids import NodeId
from stelae.spi.members import AddServer, MemberType, RemoveServer, TabletConfig
from stelae.spi.recovery_epoch import recovery_id

ANSWER_MS = 2_000
"""How long a new master may take to answer, in milliseconds."""

AGAIN_US = 100_000
"""The pause before it is asked again, for example because the connection is not up yet."""


class MasterChanges:
    """The requests for changes on one master.

    Args:
        replica: returns the replica of the system tablet, if it is up.
        core: returns the core, once the catalog is loaded.
        check_present: raises the refusal if this master was removed.
    """

    def __init__(
        self,
        node: MasterNode,
        replica: Callable[[], SystemReplica | None],
        core: Callable[[], MasterCore | None],
        check_present: Callable[[], None],
    ) -> None:
        self._node = node
        self._replica = replica
        self._core = core
        self._check_present = check_present

    def serve(self) -> None:
        """Register the handler."""
        self._node.messenger.serve(CHANGE_MASTERS, self._change)

    def _change(self, request: IncomingRequest) -> None:
        asked = decode(only_frame(request), ChangeMastersRequest)
        check_change(asked.change)
        self._check_present()
        replica = self._leading()
        match asked.change:
            case AddServer(member_type=MemberType.PRE_VOTER) as new:
                if replica.status.config.member(new.node_id) is None:
                    self._ask_first(request, asked, new)
                    return
            case RemoveServer() as gone:
                if replica.status.config.member(gone.node_id) is not None:
                    self._check_removal()
            case _:
                raise CallerError("masters are added as PRE_VOTER, which becomes a VOTER by itself, or removed")
        self._make(request, asked)

    def _leading(self) -> SystemReplica:
        """Return the replica of the leader. ``NotLeader``: another master leads. ``Unavailable``: none is known."""
        replica = self._replica()
        if replica is None:
            raise Unavailable("this master has no system tablet yet")
        if replica.status.role is not Role.LEADER:
            raise NotLeader(replica.status.leader)
        if not cluster_created_us(self._catalog):
            raise Unavailable("the cluster has not begun: its masters have to agree first")
        return replica

    @property
    def _catalog(self) -> Catalog | None:
        core = self._core()
        return None if core is None else core.catalog

    def _check_removal(self) -> None:
        """Raise ``ChangeNotYet`` while a tablet server could lose sight of the masters."""
        core = self._core()
        if core is not None and (obstacle := core.obstacle_to_removal(self._node.turns.now_us())):
            raise ChangeNotYet(f"{obstacle}; a heartbeat takes half a second, so ask again")

    def _ask_first(self, request: IncomingRequest, asked: ChangeMastersRequest, new: AddServer) -> None:
        """Make the change if the new master answers and may join."""
        turns = self._node.turns
        until_us = turns.now_us() + ANSWER_MS * 1_000

        def ask() -> None:
            self._node.messenger.add_peer(new.node_id, new.address)  # Another request for it may have closed the links.
            body = [encode(BootstrapRequest())]
            call = self._node.messenger.call(new.node_id, BOOTSTRAP, body, deadline_ms=ANSWER_MS)
            call.add_done_callback(answered)

        def answered(call: PendingCall) -> None:
            answer = answer_of(call)
            if _may_change(answer) and turns.now_us() < until_us:
                turns.call_at(turns.now_us() + AGAIN_US, ask)
                return
            try:
                self._make_unless_refused(request, asked, new, answer)
            except StelaeError as error:
                self._close_links(new.node_id)
                request.refuse(error)

        ask()

    def _make_unless_refused(
        self,
        request: IncomingRequest,
        asked: ChangeMastersRequest,
        new: AddServer,
        answer: BootstrapAnswer | StelaeError,
    ) -> None:
        self._leading()
        if reason := self._objection(new, answer):
            raise MemberChangeRefused(f"{reason}; nothing was changed")
        self._make(request, asked)

    def _objection(self, new: AddServer, answer: BootstrapAnswer | StelaeError) -> str:
        """Return why a node may not join, and what to do; empty if it may."""
        name = f"the node at {new.address}"
        if isinstance(answer, StelaeError):
            step = "start it with: stelae master run, as a master of this cluster"
            return f"{name} does not answer as master {new.node_id}: {answer}; {step}"
        return self._objection_to_data(name, new, answer)

    def _objection_to_data(self, name: str, new: AddServer, answer: BootstrapAnswer) -> str:
        """Return what is wrong with the data of a node, and what to do; empty if it may join."""
        config, created_us = self._leading().status.config, cluster_created_us(self._catalog)
        if answer.is_new and new.node_id in config.former_voters:
            fact = f"{name} was a master with a vote, as {new.node_id}, and its directory is new"
            why = "the leader fills no directory for such a uuid, because what it has promised is lost"
            return f"{fact}: {why}; put its old directory back, or format the directory under a new uuid"
        if answer.stage is BootstrapStage.NEW:
            return ""
        if answer.cluster_created_us not in (0, created_us):
            step = "format a new directory for it, if that cluster is not needed"
            return f"{name} is a master of another cluster with the same id; {step}"
        if answer.config_id is not None and recovery_id(answer.config_id.term) < recovery_id(config.op_id.term):
            why = "it may have changes that the survivor never had, and its replica would fail"
            step = "stop it, and format a new directory for it, under a new uuid"
            return f"{name} was left behind when the masters were recovered: {why}; {step}"
        if answer.cluster_created_us == created_us or self._has_begun_to_join(new, answer):
            return ""
        if answer.stage is BootstrapStage.EMPTY:
            step = "stop it, and format its directory anew with a [masters] that lists only the present masters"
            return f"{name} has a system tablet of its own, for a cluster that has not begun; {step}"
        step = "if its log does not say what is wrong, format a new directory for it, under a new uuid"
        return f"{name} cannot say whether its system tablet is of this cluster; {step}"

    def _has_begun_to_join(self, new: AddServer, answer: BootstrapAnswer) -> bool:
        """Whether the data of a node is from a join to this cluster that ended early.

        Such a node bootstraps no cluster, because it has no vote."""
        replica = self._leading()
        config = replica.status.config
        known = {new.node_id, *config.former_voters, *(member.node_id for member in config.members)}
        has_vote = new.node_id in answer.members and new.node_id not in answer.joining
        return not has_vote and known.issuperset(answer.members)

    def _make(self, request: IncomingRequest, asked: ChangeMastersRequest) -> None:
        def done(result: TabletConfig | StelaeError) -> None:
            if isinstance(result, StelaeError):
                if isinstance(asked.change, AddServer):
                    self._close_links(asked.change.node_id)
                request.refuse(result)
            else:
                request.reply([encode(ChangeMembersReply(result))])

        self._leading().change_members(asked.change, done, committed_config_id=asked.committed_config_id)

    def _close_links(self, node_id: NodeId) -> None:
        """Close the links to a node that is no member: they would try to connect for ever."""
        replica = self._replica()
        if replica is None or replica.status.config.member(node_id) is None:
            self._node.messenger.remove_peer(node_id)


def _may_change(answer: BootstrapAnswer | StelaeError) -> bool:
    """Whether a node that is only starting could answer otherwise soon."""
    if isinstance(answer, StelaeError):
        return isinstance(answer, RetryableError)
    return answer.stage is BootstrapStage.UNKNOWN and not answer.cluster_created_us
