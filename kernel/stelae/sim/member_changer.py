"""Changes the members of the tablet while clients write and faults happen.

Each change is drawn from the config that some leader shows, so it is often out of date when it arrives. Some requests
carry a compare-and-set id, which may be stale; some are sent twice, or to a node that does not lead. The changer never
waits for the answer: at most one change is pending, and the cores must enforce that."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Final

from stelae.host.replica import Replica
from stelae.sim.draw import below, chance, skewed
from stelae.sim.member_drawing import MemberDrawing
from stelae.sim.run_parts import RunParts
from stelae.spi.errors import ChangeNotYet, MemberChangeRefused, NotLeader, StelaeError
from stelae.spi.ids import OpId
from stelae.spi.members import MemberChange, MemberType, RemoveServer, TabletConfig

NUMBER: Final = 70
"""Position of the changer on the network, above all clients."""

_REASON: Final = re.compile(r": ([A-Z_]+): ")
"""The reason in the text of a refusal (``rejection_errors``)."""

ANYWHERE: Final = 0.15
"""Share of the requests that go to any node instead of the leader."""

FENCED: Final = 0.5
"""Share of the requests with a compare-and-set id. It is that of the config which the change was drawn from."""

TWICE: Final = 0.2
"""Share of the requests that are sent twice."""


class SimMemberChanger:
    """Requests changes at random times until ``stopping``.

    Args:
        loses_replica: whether a fault of the run's plan loses a replica permanently.
        changes_max: limit on the changes and aborts that it requests; ``None`` for no limit. It draws the others too.
    """

    def __init__(
        self, parts: RunParts, rng: random.Random, *, loses_replica: bool, changes_max: int | None = None
    ) -> None:
        self._parts = parts
        self._rng = rng
        self._drawing = MemberDrawing(
            parts.world.nodes, rng, witnesses=parts.profile.witnesses, loses_replica=loses_replica
        )
        self._left = changes_max
        self.stopping = False

    def start(self) -> None:
        """Begin to change members, in runs that do."""
        if self._parts.profile.member_change_us is not None:
            pause_us = skewed(self._rng, *self._parts.profile.member_change_us)
            self._parts.scheduler.after(pause_us, "members.act", self._act)

    def leader_elected(self, position: int) -> None:
        """Ask the core of a leader that does not serve yet for a change.

        The replica itself would refuse it, so it goes to the core directly."""
        if self._parts.profile.member_change_us is None or self.stopping:
            return

        def ask() -> None:
            replica = self._parts.nodes[position].replica
            if replica is not None and not replica.status.serving:
                change = self._drawing.draw(replica.status.config)
                if not self._take_one():
                    return
                self._parts.coverage.hit("members.before_serving")
                if self._may_ask(replica, change):
                    replica.deliver(replica.member_changes.request(change, None, lambda _result: None))

        self._parts.scheduler.after(0, "members.before_serving", lambda: self._parts.nodes[position].run(ask))

    def is_settled(self) -> bool:
        """Return true if every member that is to be promoted has been promoted.

        A member without rows that was added as a voter never is. A witness is if it has rows."""
        if self._parts.profile.member_change_us is None:
            return True
        config = self._parts.world.committed_config()
        lost = {node.node_id for node in self._parts.world.nodes if node.given_up}
        without_rows = {node.node_id for node in self._parts.world.nodes if node.log_only}
        return not any(
            member.member_type is MemberType.PRE_WITNESS
            or (member.member_type in (MemberType.PRE_VOTER, MemberType.WITNESS) and member.node_id not in without_rows)
            for member in config.members
            if member.node_id not in lost
        )

    def _act(self) -> None:
        if self.stopping:
            return
        leader = self._parts.world.leader()
        if leader is not None:
            shown = self._parts.nodes[leader].view.status
            assert shown is not None
            target = below(self._rng, len(self._parts.nodes)) if chance(self._rng, ANYWHERE) else leader
            if chance(self._rng, 0.05):
                self._abort(target)
            else:
                self._request(target, self._drawing.draw(shown.config), shown.committed_config.op_id)
        self.start()

    # -- asking ----------------------------------------------------------------------------------

    def _take_one(self) -> bool:
        """Count one change or abort. Return false if the limit is used up: it is not sent."""
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0

    def _may_ask(self, replica: Replica, change: MemberChange) -> bool:
        """Return whether an operator may ask a replica for a change.

        The change must leave enough voters, and a node that lost its files may only be removed. It must never be a
        member under this uuid again (``durability.md`` rule 19). The leader does not know this."""
        if not self._drawing.may_leave(replica.status.config, change):
            return False
        lost = {node.view.node_id for node in self._parts.nodes if node.has_lost_files}
        return isinstance(change, RemoveServer) or change.node_id not in lost

    def _request(self, target: int, change: MemberChange, seen: OpId) -> None:
        fence = seen if chance(self._rng, FENCED) else None
        times = 2 if chance(self._rng, TWICE) else 1
        if not self._take_one():
            return
        kind = type(change).__name__.lower()
        self._parts.coverage.hit(f"members.asked.{kind}")

        def done(result: TabletConfig | StelaeError) -> None:
            self._parts.coverage.hit(f"members.{_outcome(result, kind)}")

        def ask(replica: Replica) -> None:
            if self._may_ask(replica, change):
                replica.change_members(change, done, committed_config_id=fence)

        for _ in range(times):
            self._send(target, ask)

    def _abort(self, target: int) -> None:
        if not self._take_one():
            return

        def done(error: StelaeError | None) -> None:
            self._parts.coverage.hit("members.aborted" if error is None else "members.not_aborted")

        self._send(target, lambda replica: replica.abort_change(done))

    def _send(self, target: int, serve: Callable[[Replica], None]) -> None:
        node = self._parts.nodes[target]

        def arrived() -> None:
            replica: Replica | None = node.replica
            if replica is not None:
                serve(replica)

        self._parts.network.send((len(self._parts.nodes) + NUMBER, target), "members", lambda: node.run(arrived))


def _outcome(result: TabletConfig | StelaeError, kind: str) -> str:
    if isinstance(result, TabletConfig):
        return f"done.{kind}"
    if isinstance(result, MemberChangeRefused | ChangeNotYet):
        reason = _REASON.search(str(result))
        return f"refused.{result.code if reason is None else reason[1]}".lower()
    if isinstance(result, NotLeader) and "STEPPING_DOWN" in result.reason:
        return "stepping_down"
    return f"error.{result.code.lower()}"
