"""Serves the requests of operators about the members of a tablet: its config, changes of it, and their abort."""

from __future__ import annotations

from stelae.host.node import Node
from stelae.host.replica import Replica
from stelae.protocol.codec import decode, encode
from stelae.protocol.member_messages import (
    ABORT_CHANGE,
    CHANGE_MEMBERS,
    CONFIG,
    AbortChangeRequest,
    ChangeMembersReply,
    ChangeMembersRequest,
    ConfigRequest,
    ConfigView,
    MemberProgress,
)
from stelae.server.frames import only_frame
from stelae.server.tserver.stopped_replicas import leads, refuse_stopped
from stelae.server.tserver.tablet_service import refuse_system_tablet, replica_of
from stelae.spi.errors import CallerError, ConfigError, NotLeader, StelaeError, WrongConfigId
from stelae.spi.ids import OpId, node_id
from stelae.spi.members import AddServer, MemberChange, TabletConfig
from stelae.wire.addresses import split_address
from stelae.wire.requests import Request


class MemberService:
    """Serves requests about the members of a node's tablets. A ``Service`` (``stelae.spi.hooks``)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def start(self) -> None:
        """Register the handlers."""
        serve = self._node.messenger.serve
        serve(CONFIG, self._config)
        serve(CHANGE_MEMBERS, self._change)
        serve(ABORT_CHANGE, self._abort)

    def stop(self) -> None:
        """Do nothing: the service holds no resources."""

    def _config(self, request: Request) -> None:
        asked = decode(only_frame(request), ConfigRequest)
        replica = replica_of(self._node, asked.tablet_id)
        if asked.leader_only:
            refuse_stopped(replica)
            if not leads(replica):
                raise NotLeader(replica.status.leader)
        request.reply([encode(config_view(replica))])

    def _change(self, request: Request) -> None:
        asked = decode(only_frame(request), ChangeMembersRequest)
        refuse_system_tablet(asked.tablet_id)
        check_change(asked.change)

        def done(result: TabletConfig | StelaeError) -> None:
            if isinstance(result, StelaeError):
                request.refuse(result)
            else:
                request.reply([encode(ChangeMembersReply(result))])

        replica = replica_of(self._node, asked.tablet_id)
        replica.change_members(asked.change, done, committed_config_id=asked.committed_config_id)

    def _abort(self, request: Request) -> None:
        asked = decode(only_frame(request), AbortChangeRequest)
        refuse_system_tablet(asked.tablet_id)
        replica = replica_of(self._node, asked.tablet_id)
        check_config_id(replica, asked.committed_config_id)

        def done(error: StelaeError | None) -> None:
            if error is None:
                request.reply()
            else:
                request.refuse(error)

        replica.abort_change(done)


def config_view(replica: Replica) -> ConfigView:
    """Return the config of a tablet as one of its replicas knows it."""
    status = replica.status
    return ConfigView(
        tablet_id=replica.tablet_id,
        node_id=status.node_id,
        role=status.role.value,
        term=status.term,
        leader=status.leader,
        config=status.config,
        committed=status.committed_config,
        last=status.last,
        log_base=replica.flusher.log_base,
        commit=status.commit,
        progress=tuple(
            MemberProgress(node_id=peer.node_id, match_index=peer.match_index, state=peer.state, log_only=peer.log_only)
            for peer in status.peers
        ),
    )


def check_config_id(replica: Replica, expected: OpId | None) -> None:
    """Check the compare-and-set id of a request that changes no config itself, such as a transfer of leadership.

    Raises:
        WrongConfigId: the leader's committed config is another one. Other replicas refuse such requests anyway.
    """
    committed = replica.status.committed_config.op_id
    if expected is not None and leads(replica) and committed != expected:
        fact = f"the committed config is {committed}, the request is meant for {expected}"
        raise WrongConfigId(f"{fact}; look at the config again, then decide")


def check_change(change: MemberChange) -> None:
    """Check the names in a change.

    Raises:
        BadIdentifier: the node id is not one.
        CallerError: other nodes could not connect to the address.
    """
    node_id(change.node_id)
    if not isinstance(change, AddServer):
        return
    if change.replaces is not None:
        node_id(change.replaces)
    try:
        _, port = split_address(change.address)
    except ConfigError as error:
        raise CallerError(f"{error.fact}; write host:port, as in the node's `listen`") from error
    if port == 0:
        raise CallerError(f"port 0 in {change.address!r}; other nodes connect to it: give a port from 1 to 65535")
