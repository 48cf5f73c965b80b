"""The fault plan of a masters run, drawn at its start, and the driver that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial

import msgspec

from stelae.sim.draw import between, chance, pick, skewed, stream
from stelae.sim.masters.master import SimMaster
from stelae.sim.masters.steps import OF_CATALOG, OF_MEMBERS, ChangeStep
from stelae.sim.masters.tserver import SimServer
from stelae.sim.masters.world import MastersWorld
from stelae.spi.ids import NodeId

SAFETY_US = 16_000_000
"""Length of the phase with faults, in microseconds."""


BACK_US = 150_000
"""Time after which a busy leader that has transferred leadership gets it back, in microseconds."""


class MastersFaultKind(StrEnum):
    """The kinds of faults. Each is counted as ``fault.<kind>`` when it starts."""

    CRASH_MASTER = "crash_master"
    PAUSE_MASTER = "pause_master"
    PARTITION_MASTER = "partition_master"
    """A master is cut off from the other masters only, so clients and servers may still take it for the leader."""
    STRIKE_CRASH = "strike_crash"
    """A master crashes at a drawn step of a change."""
    STRIKE_PAUSE = "strike_pause"
    """A master is paused at a drawn step of a change."""
    STRIKE_PARTITION = "strike_partition"
    """A master is cut off from the other masters at a drawn step of a change."""
    DEPOSE = "depose"
    """The leader transfers leadership although nothing is wrong."""
    CRASH_SERVER = "crash_server"
    PAUSE_SERVER = "pause_server"
    PARTITION_SERVER = "partition_server"
    """A tablet server is cut off from one master."""
    DEAF_SERVER = "deaf_server"
    """A tablet server sends heartbeats, but the actions of masters are lost. Its tablets miss schema changes."""
    DEPOSE_BUSY = "depose_busy"
    """The leader is busy, transfers leadership at a drawn step of a change, and soon gets it back."""
    BUSY_MASTER = "busy_master"
    """The timers of a master's driver are late, but messages arrive: proposals wait while others elect a leader."""
    FILL_MASTER = "fill_master"
    """The disk of a master is full."""
    LOSSY = "lossy"
    SLOW = "slow"
    STRIKE_MEMBERS = "strike_members"
    """The leading master crashes at a drawn step of a change of members."""


class MastersFault(msgspec.Struct, frozen=True, kw_only=True):
    """One planned fault.

    Attributes:
        number: position in the plan; identifies the fault on the command line.
        at_us: time at which it starts.
        victim: position of a master or a tablet server; ``LEADER`` for the master that leads then.
        duration_us: time until it is undone.
        step: step of a change at which the fault strikes, for kinds that have one.
        passes: number of passes of the step until the fault strikes.
    """

    number: int
    kind: MastersFaultKind
    at_us: int
    victim: int
    duration_us: int
    step: ChangeStep
    passes: int


LEADER = -1
MEMBER_STRIKES_SHARE = 0.4
"""The share of the runs that have strikes at changes of members."""
OF_SERVERS = (
    MastersFaultKind.CRASH_SERVER,
    MastersFaultKind.PAUSE_SERVER,
    MastersFaultKind.PARTITION_SERVER,
    MastersFaultKind.DEAF_SERVER,
)

_Drawn = tuple[int, MastersFaultKind, int, int, ChangeStep, int]
"""Time, kind, victim, duration, step and passes of a fault."""

OTHERS = tuple(kind for kind in MastersFaultKind if kind is not MastersFaultKind.STRIKE_MEMBERS)


def draw_plan(seed: int, masters: int, servers: int) -> tuple[MastersFault, ...]:
    """Return the faults of a seed, in order of time."""
    rng = stream(seed, "masters/plan")
    drawn: list[_Drawn] = []
    for _ in range(between(rng, 5, 17)):
        kind = pick(rng, OTHERS)
        of_server = kind in OF_SERVERS
        victim = between(rng, 0, (servers if of_server else masters) - 1)
        if not of_server and chance(rng, 0.6):
            victim = LEADER
        duration_us = skewed(rng, 50_000, 6_000_000)
        drawn.append(
            (between(rng, 300_000, SAFETY_US), kind, victim, duration_us, pick(rng, OF_CATALOG), between(rng, 1, 4))
        )
    drawn += _member_strikes(seed)
    drawn.sort(key=lambda fault: fault[0])
    return tuple(
        MastersFault(number=n, at_us=a, kind=k, victim=v, duration_us=d, step=s, passes=p)
        for n, (a, k, v, d, s, p) in enumerate(drawn)
    )


def _member_strikes(seed: int) -> list[_Drawn]:
    """Draw the strikes at changes of members. They have a stream of their own: other faults stay what they were."""
    rng = stream(seed, "masters/member strikes")
    if not chance(rng, MEMBER_STRIKES_SHARE):
        return []
    return [
        (
            between(rng, 300_000, SAFETY_US),
            MastersFaultKind.STRIKE_MEMBERS,
            LEADER,
            skewed(rng, 50_000, 2_000_000),
            pick(rng, OF_MEMBERS),
            between(rng, 1, 2),
        )
        for _ in range(between(rng, 1, 4))
    ]


class MastersFaultDriver:
    """Starts and ends the faults of a plan.

    Args:
        masters: all masters that ever ran; it grows.
        present: returns the masters by the newest committed config, of which victims are chosen.
    """

    def __init__(
        self,
        world: MastersWorld,
        masters: Mapping[NodeId, SimMaster],
        present: Callable[[], Sequence[SimMaster]],
        servers: Sequence[SimServer],
    ) -> None:
        self._world = world
        self._all = masters
        self._present = present
        self._servers = servers

    def schedule(self, plan: Sequence[MastersFault]) -> None:
        """Schedule every fault for its time."""
        for fault in plan:
            self._world.scheduler.at(fault.at_us, f"fault {fault.kind}", lambda fault=fault: self._strike(fault))  # type: ignore[misc]

    def heal(self) -> None:
        """End all faults, also those still planned."""
        self._world.healed = True
        network = self._world.network
        network.lossy = network.slow = False
        network.cut.clear()
        stopped: list[SimMaster | SimServer] = [*self._masters, *self._servers]
        for target in stopped:
            target.restart()
            target.endpoint.resume()
        for server in self._servers:
            server.deaf = False
        for master in self._masters:
            master.set_busy(busy=False)
            master.fill_disk(full=False)

    def _strike(self, fault: MastersFault) -> None:
        if self._world.healed:
            return
        self._world.coverage.hit(f"fault.{fault.kind}")
        match fault.kind:
            case MastersFaultKind.LOSSY | MastersFaultKind.SLOW:
                self._disturb_links(fault)
            case MastersFaultKind.DEPOSE:
                self._depose(fault)
            case MastersFaultKind.DEPOSE_BUSY:
                self._depose_busy(fault)
            case MastersFaultKind.BUSY_MASTER:
                self._make_busy(self._master(fault), fault)
            case MastersFaultKind.FILL_MASTER:
                self._fill_disk(self._master(fault), fault)
            case MastersFaultKind.CRASH_SERVER | MastersFaultKind.PAUSE_SERVER:
                self._stop(self._servers[fault.victim], fault, pause=fault.kind is MastersFaultKind.PAUSE_SERVER)
            case MastersFaultKind.PARTITION_SERVER:
                self._cut(self._servers[fault.victim].endpoint.name, [self._master(fault).endpoint.name], fault)
            case MastersFaultKind.DEAF_SERVER:
                self._deafen(self._servers[fault.victim], fault)
            case MastersFaultKind.CRASH_MASTER | MastersFaultKind.PAUSE_MASTER | MastersFaultKind.PARTITION_MASTER:
                self._strike_master(self._master(fault), fault)
            case MastersFaultKind.STRIKE_CRASH | MastersFaultKind.STRIKE_PAUSE | MastersFaultKind.STRIKE_PARTITION:
                self._schedule_retry(self._master(fault), fault)
            case MastersFaultKind.STRIKE_MEMBERS:
                self._await_member_step(fault)

    @property
    def _masters(self) -> Sequence[SimMaster]:
        return [*self._all.values()]

    def _victim(self, number: int) -> SimMaster:
        present = self._present()
        return present[number % len(present)]

    def _master(self, fault: MastersFault) -> SimMaster:
        if fault.victim != LEADER:
            return self._victim(fault.victim)
        leader = self._leader()
        return self._victim(0) if leader is None else leader

    def _leader(self) -> SimMaster | None:
        """Return the master that believes to lead in the highest term, if any."""
        leaders = [master for master in self._masters if master.leader_term]
        return max(leaders, key=lambda master: (master.leader_term, master.position), default=None)

    def _depose(self, fault: MastersFault) -> None:
        """Make the leader transfer leadership: to the victim if that is another master, else to the best candidate."""
        leader = self._leader()
        if leader is not None:
            named = fault.victim != LEADER and self._victim(fault.victim) is not leader
            leader.hand_over(self._victim(fault.victim).node_id if named else None)

    def _depose_busy(self, fault: MastersFault) -> None:
        leader = self._leader()
        if leader is None:
            return

        def hand_back() -> None:
            successor = self._leader()
            if successor is not None and successor is not leader:
                successor.hand_over(leader.node_id)

        def struck() -> None:
            if not self._world.healed:
                self._world.scheduler.after(0, f"fault {fault.kind}", lambda: leader.hand_over(None))
                self._world.scheduler.after(BACK_US, f"fault {fault.kind}", hand_back)

        self._make_busy(leader, fault)
        leader.strike.arm(fault.step, fault.passes, struck)

    def _make_busy(self, master: SimMaster, fault: MastersFault) -> None:
        master.set_busy(busy=True)
        self._undo(fault, lambda: master.set_busy(busy=False))

    def _fill_disk(self, master: SimMaster, fault: MastersFault) -> None:
        master.fill_disk(full=True)
        self._undo(fault, lambda: master.fill_disk(full=False))

    def _schedule_retry(self, master: SimMaster, fault: MastersFault) -> None:
        def struck() -> None:
            if not self._world.healed:
                self._world.coverage.hit(f"struck.{fault.step}.{fault.kind}")
                self._strike_master(master, fault)

        master.strike.arm(fault.step, fault.passes, struck)

    def _await_member_step(self, fault: MastersFault) -> None:
        """Crash whichever master is first to take the step: only the leading one takes it."""
        waiting = [True]

        def struck(master: SimMaster) -> None:
            if waiting and not self._world.healed:
                waiting.clear()
                self._world.coverage.hit(f"struck.{fault.step}.{fault.kind}")
                self._stop(master, fault, pause=False)

        for master in self._masters:
            master.member_strike.arm(fault.step, fault.passes, partial(struck, master))

    def _strike_master(self, master: SimMaster, fault: MastersFault) -> None:
        if fault.kind in (MastersFaultKind.PARTITION_MASTER, MastersFaultKind.STRIKE_PARTITION):
            self._cut(master.endpoint.name, [m.endpoint.name for m in self._masters if m is not master], fault)
        else:
            self._stop(
                master, fault, pause=fault.kind in (MastersFaultKind.PAUSE_MASTER, MastersFaultKind.STRIKE_PAUSE)
            )

    def _stop(self, target: SimMaster | SimServer, fault: MastersFault, *, pause: bool) -> None:
        if pause:
            target.endpoint.pause()
            self._undo(fault, target.endpoint.resume)
        else:
            self._undo(fault, target.restart)
            target.crash()  # Raises within a turn of a master.

    def _cut(self, name: str, others: Sequence[str], fault: MastersFault) -> None:
        pairs = {pair for other in others for pair in ((name, other), (other, name))}
        cut = self._world.network.cut
        cut |= pairs
        self._undo(fault, lambda: cut.difference_update(pairs))

    def _deafen(self, server: SimServer, fault: MastersFault) -> None:
        server.deaf = True
        self._undo(fault, lambda: setattr(server, "deaf", False))

    def _disturb_links(self, fault: MastersFault) -> None:
        network = self._world.network
        name = "lossy" if fault.kind is MastersFaultKind.LOSSY else "slow"
        setattr(network, name, True)
        self._undo(fault, lambda: setattr(network, name, False))

    def _undo(self, fault: MastersFault, action: object) -> None:
        assert callable(action)
        self._world.scheduler.after(fault.duration_us, f"undo {fault.kind}", action)
