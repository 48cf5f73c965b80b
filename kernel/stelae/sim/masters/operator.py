"""An operator who adds, removes and replaces masters while clients change tables and faults happen.

Everything that it does goes to the masters as the requests of ``stelae master add|remove|replace``, over the simulated
network, so it may be lost, late or doubled. Each request names the committed config that it is meant for. The operator
has one goal at a time, and asks for the next step of it until a config shows that it is done."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from stelae.protocol.codec import encode
from stelae.protocol.masters_messages import CHANGE_MASTERS, ChangeMastersRequest
from stelae.sim.draw import below, between, chance, pick, skewed
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.masters_follower import MastersFollower
from stelae.sim.masters.messenger import CallAnswer
from stelae.sim.masters.network import SimEndpoint
from stelae.sim.masters.world import MastersWorld
from stelae.spi.errors import NotLeader
from stelae.spi.ids import NodeId
from stelae.spi.members import AddServer, MemberChange, MemberType, RemoveServer, TabletConfig
from stelae.wire.refusals import error_of

NODE_ID = NodeId(f"{0x0BE:032x}")
PACE_US = (40_000, 250_000)
"""Shortest and longest time between two steps."""

REST_US = (1, 1_500_000)
"""Shortest and longest time between two goals."""

AWAY_US = (300_000, 4_000_000)
"""Shortest and longest time until a master comes back whose disk was lost, or that was removed."""

STRUCK = 0.35
"""The share of the requests after which the master that was asked crashes, in runs with such crashes."""

STRUCK_US = (1_000, 100_000)
"""Shortest and longest time from the request to the crash."""

DOWN_US = (50_000, 2_000_000)
"""Shortest and longest time from the crash to the start."""

VOTERS_MAX = 5
NEW_MASTERS_MAX = 6
"""The most masters that are ever added to those of the beginning."""

FOREIGN_ATTEMPTS = 4

LOST_ATTEMPTS = 4
"""How often a master whose disk was lost is asked for after its replacement, under its old uuid and in vain."""


@dataclass(slots=True)
class Goal:
    """What the operator wants next.

    Attributes:
        new: the master that is to be a voter.
        old: the master that is to be no member, once ``new`` is a voter.
        attempts: how often a master of another cluster is still asked for; it is in vain.
    """

    name: str
    new: SimMaster | None = None
    old: SimMaster | None = None
    attempts: int = 0


class MastersOperator:
    """The operator of one run.

    Args:
        make: makes one more master at a position. It is not started.
        foreign: a master of another cluster, if the run has one.
        strikes: draws crashes of masters that were just asked for a change; ``None``: only other faults hit them.
        returns: draws the returns of masters whose disks were lost; ``None``: they are not asked for again.
    """

    def __init__(
        self,
        world: MastersWorld,
        rng: random.Random,
        masters: Mapping[NodeId, SimMaster],
        make: Callable[[int], SimMaster],
        foreign: SimMaster | None,
        strikes: random.Random | None,
        returns: random.Random | None,
    ) -> None:
        self.endpoint = SimEndpoint("op")
        self.stopping = False
        self._world = world
        self._rng = rng
        self._masters = masters
        self._make = make
        self._foreign = foreign
        self._strikes = strikes
        self._returns = returns
        self._first_new = len(masters)
        self._goal: Goal | None = None
        self._leader: NodeId | None = None
        self._lost: set[NodeId] = set()
        self._amnesia = chance(rng, 0.5) and len(masters) > 1
        self.following = MastersFollower(world, self.endpoint, NODE_ID, masters, [*masters.values()])
        self.following.follow(rng, ())

    @property
    def idle(self) -> bool:
        """True if no goal is open."""
        return self._goal is None

    def start(self) -> None:
        """Begin to change masters."""
        self._after(between(self._rng, 500_000, 2_500_000), self._act)

    def _after(self, delay_us: int, action: Callable[[], None]) -> None:
        self._world.scheduler.after(delay_us, "operator", action)

    def _act(self) -> None:
        """Do the next step of the goal, or choose another goal."""
        self.following.look()
        view, pace = self.following.view, PACE_US
        if view is not None and view.config is not None:
            self._leader = view.leader or self._leader
            if self._goal is not None:
                self._pursue(self._goal, view.config)
                pace = PACE_US if self._goal is not None else REST_US
            elif not self.stopping:
                self._goal = self._drawn(view.config)
        self._after(between(self._rng, *pace), self._act)

    # -- goals -------------------------------------------------------------------------------------

    def _drawn(self, config: TabletConfig) -> Goal | None:
        voters = [self._masters[node] for node in config.voters()]
        share = self._rng.random()
        if self._foreign is not None and share < 0.1:
            return Goal("foreign", new=self._foreign, attempts=FOREIGN_ATTEMPTS)
        if share < 0.3 and self._may_lose(config):
            return self._lose(pick(self._rng, voters))
        old = pick(self._rng, voters)
        if len(voters) > 1 and (share < 0.45 or len(voters) >= VOTERS_MAX):
            return Goal("remove", old=old)
        new = self._another(config)
        if new is None:
            return Goal("remove", old=old) if len(voters) > 1 else None
        return Goal("add", new=new) if share < 0.65 else Goal("replace", new=new, old=old)

    def _may_lose(self, config: TabletConfig) -> bool:
        """Whether the masters survive the loss of any disk, and nothing is under way that could change that.

        All masters have to run until the cluster is on record. Before, nothing distinguishes a master that has lost its
        disk from one that has not begun."""
        if self._world.committed_catalog.cluster is None:
            return False
        known = self._world.masters_config
        settled = known == config and not any(master.has_pending_config for master in self._masters.values())
        return settled and len(config.members) == len(config.voters()) >= 3 and self._new_left > 0

    def _lose(self, lost: SimMaster) -> Goal:
        """Lose the disk of a master, which is replaced. An operator may start it again under its old uuid."""
        self._world.coverage.hit("masters.disk_lost")
        self._lost.add(lost.node_id)
        lost.is_off = True
        lost.lose_disk()
        if self._amnesia:
            self._amnesia = False
            self._world.coverage.hit("masters.emptied_and_started")
            self._after(between(self._rng, *AWAY_US), lambda: self._switch_on(lost))
        new = self._new()
        assert new is not None
        return Goal("replace_lost", new=new, old=lost)

    @property
    def _new_left(self) -> int:
        return self._first_new + NEW_MASTERS_MAX - len(self._masters)

    def _new(self) -> SimMaster | None:
        """Start a new master, with a uuid of its own; ``None``: there were enough."""
        if not self._new_left:
            return None
        master = self._make(len(self._masters))
        master.start()
        return master

    def _another(self, config: TabletConfig) -> SimMaster | None:
        """Return a master to add: a new one, or one that was removed and has its disk."""
        removed = [
            master
            for node_id, master in self._masters.items()
            if node_id not in self._lost and config.member(node_id) is None
        ]
        if removed and (chance(self._rng, 0.3) or not self._new_left):
            again = pick(self._rng, removed)
            self._world.coverage.hit("masters.added_again")
            self._switch_on(again)
            return again
        return self._new()

    def _switch_on(self, master: SimMaster) -> None:
        master.is_off = False
        master.restart()

    # -- steps -------------------------------------------------------------------------------------

    def _pursue(self, goal: Goal, config: TabletConfig) -> None:
        new = None if goal.new is None else config.member(goal.new.node_id)
        if goal.attempts:
            self._attempt_foreign(goal, config)
        elif goal.new is not None and goal.new is not self._foreign and new is None:
            self._ask(AddServer(node_id=goal.new.node_id, address=goal.new.address), config)
        elif new is not None and new.member_type is not MemberType.VOTER:
            return  # The leader makes it a voter, or removes it if it does not answer.
        elif goal.old is not None and config.member(goal.old.node_id) is not None:
            self._ask(RemoveServer(node_id=goal.old.node_id), config)
        else:
            self._world.coverage.hit(f"masters.{goal.name}")
            self._goal = None
            if goal.old is not None and goal.old.node_id not in self._lost:
                self._dismiss(goal.old)
            elif goal.old is not None and self._returns is not None:
                wait_us = between(self._returns, *AWAY_US)
                self._after(wait_us, partial(self._return_lost, goal.old, self._returns, LOST_ATTEMPTS))

    def _return_lost(self, lost: SimMaster, rng: random.Random, attempts: int) -> None:
        """Ask for a removed master that has an empty directory. The leader must refuse it."""
        view = self.following.view
        if self.stopping or not attempts or view is None or view.config is None:
            return
        if not lost.endpoint.up:
            self._switch_on(lost)
        self._world.coverage.hit("masters.lost_asked_for")
        self._send(rng, AddServer(node_id=lost.node_id, address=lost.address), view.config)
        self._after(between(rng, *PACE_US), partial(self._return_lost, lost, rng, attempts - 1))

    def _attempt_foreign(self, goal: Goal, config: TabletConfig) -> None:
        assert goal.new is not None
        goal.attempts -= 1
        self._ask(AddServer(node_id=goal.new.node_id, address=goal.new.address), config)

    def _dismiss(self, removed: SimMaster) -> None:
        """Let a removed master run on, end it, or end it and let it come back."""
        share = self._rng.random()
        if share < 0.4:
            self._world.coverage.hit("masters.removed_runs_on")
            return
        removed.is_off = True
        removed.crash()
        if share < 0.7:
            self._world.coverage.hit("masters.removed_comes_back")
            self._after(between(self._rng, *AWAY_US), lambda: self._switch_on(removed))

    def _ask(self, change: MemberChange, config: TabletConfig) -> None:
        """Ask for a change that is meant for this config. The master that is asked may crash."""
        master = self._send(self._rng, change, config)
        if self._strikes is not None and not self._world.healed and chance(self._strikes, STRUCK):
            self._after(between(self._strikes, *STRUCK_US), partial(self._strike, self._strikes, master))

    def _send(self, rng: random.Random, change: MemberChange, config: TabletConfig) -> SimMaster:
        """Send a change to the leader, as far as it is known. Return the master that is asked."""
        known = self._masters.get(self._leader) if self._leader is not None else None
        masters = self.following.masters
        master = known if known is not None and below(rng, 4) else pick(rng, masters)
        body, network = encode(ChangeMastersRequest(change, config.op_id)), self._world.network

        def answer(result: CallAnswer) -> None:
            network.send(master.endpoint.name, self.endpoint, "change of masters", lambda: self._answered(result))

        network.send(
            self.endpoint.name,
            master.endpoint,
            CHANGE_MASTERS,
            lambda: master.receive_request(NODE_ID, CHANGE_MASTERS, body, answer),
        )
        return master

    def _strike(self, rng: random.Random, master: SimMaster) -> None:
        """Crash a master that makes a change, and start it again later."""
        if not self._world.healed and master.endpoint.up:
            self._world.coverage.hit("masters.struck")
            master.crash()
            self._after(skewed(rng, *DOWN_US), master.restart)

    def _answered(self, answer: CallAnswer) -> None:
        if isinstance(answer, bytes):
            self._world.coverage.hit("masters.change_made")
            return
        error = error_of(answer)
        self._world.coverage.hit(f"masters.refused.{error.code}")
        if isinstance(error, NotLeader):
            self._leader = None if error.leader is None else NodeId(error.leader)
