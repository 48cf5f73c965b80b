"""One simulated master across all its starts: production's driver and core, on a node with a real system tablet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stelae.host.instance import Instance, format_directory
from stelae.host.replica import Replica
from stelae.protocol.actions import ServerAction
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.master_heartbeats import Heartbeat
from stelae.protocol.master_messages import CHANGE, READ
from stelae.server.master.core.catalog import Catalog
from stelae.server.master.core.events import Decided, EntryApplied, ReadAsked
from stelae.server.master.core.master_core import MasterCore
from stelae.server.master.core.reconcile import ClusterView
from stelae.sim.clock import VirtualClock
from stelae.sim.disk import PowerLost, VirtualDisk
from stelae.sim.draw import stream
from stelae.sim.masters.committed_log import CommittedLog
from stelae.sim.masters.master_node import LAYOUT, MasterNodeRun, MasterRun
from stelae.sim.masters.master_profile import MasterProfile, master_config
from stelae.sim.masters.messenger import Answered, Router, SimMessenger
from stelae.sim.masters.peer_link import MasterLink
from stelae.sim.masters.process_endpoint import ProcessEndpoint
from stelae.sim.masters.steps import ChangeStep, Strike, hears_config, records_config, sent_step
from stelae.sim.masters.world import CLUSTER, MastersWorld, master_member, master_node
from stelae.sim.node_links import FramesInFlight
from stelae.sim.process import Process, where_raised
from stelae.spi.consensus import Role, Status
from stelae.spi.errors import StelaeError
from stelae.spi.ids import IncarnationId, NodeId, TabletId
from stelae.spi.members import Member, TabletConfig

RETRY_US = 400_000
"""Delay of the next attempt after a start that failed because of a full disk."""

FULL_SLACK_BYTES = 512
"""Space left on a full disk."""


class SimMaster:
    """One simulated master.

    Attributes:
        epoch: number of starts so far.
        strike: the armed fault, to which the steps of a change of the catalog are reported.
        member_strike: the same for the steps of a change of members.
        is_busy: true while its timers are late.
        is_off: true while an operator wants no process to run here.
    """

    def __init__(
        self,
        world: MastersWorld,
        committed_log: CommittedLog,
        position: int,
        seed: int,
        profile: MasterProfile,
        masters: list[Member],
        peers: Mapping[NodeId, SimMaster],
        router: Router,
    ) -> None:
        self.endpoint = ProcessEndpoint(f"m{position}")
        self.position = position
        self.node_id = master_node(position)
        self.epoch = 0
        self.strike, self.member_strike = Strike(), Strike()
        self.is_busy = self.is_off = False
        self.on_applied: Callable[[SimMaster, Catalog], None] = lambda master, before: None
        self.on_stepped: Callable[[SimMaster], None] = lambda master: None
        self.on_received: Callable[[SimMaster, Heartbeat], None] = lambda master, heartbeat: None
        self.on_answered: Callable[[SimMaster, ReadAsked, int], None] = lambda master, asked, within_us: None
        self._world = world
        self._log = committed_log
        self._seed = seed
        self._profile = profile
        self._config = master_config(profile, master_member(position), masters)
        self._peers = peers
        self._router = router
        self._rng = stream(seed, f"master/{position}/disk")
        self._clock = VirtualClock(world.scheduler, error_us=0)
        self._disk = VirtualDisk()
        self._node: MasterNodeRun | None = None
        self._link: MasterLink | None = None
        self._messenger: SimMessenger | None = None
        self._format()

    def _format(self) -> None:
        instance = Instance(node_id=self.node_id, cluster_id=CLUSTER, wal_engine=self._config.wal.name)
        format_directory(self._disk, LAYOUT, instance)

    # -- state -----------------------------------------------------------------------------------

    @property
    def has_core(self) -> bool:
        """True if a process runs and has loaded its catalog."""
        return self._node is not None and self._node.master.core is not None

    @property
    def core(self) -> MasterCore:
        """The core of the running process, which must exist."""
        assert self._node is not None and self._node.master.core is not None
        return self._node.master.core

    @property
    def knows_removal(self) -> bool:
        """True if a process runs and knows a config of the masters that does not list it."""
        return self._node is not None and self._node.master.knows_removal

    @property
    def leader_term(self) -> int | None:
        """The term in which its replica of the system tablet believes to lead, or ``None``."""
        replica = self._replica
        leads = self.endpoint.up and replica is not None and replica.status.role is Role.LEADER
        return replica.status.term if leads and replica is not None else None

    @property
    def address(self) -> str:
        """The address at which others reach it."""
        return self._config.node.listen

    @property
    def config(self) -> TabletConfig | None:
        """The committed config of the masters that its replica has; ``None`` without a replica."""
        return None if self._replica is None else self._replica.status.committed_config

    @property
    def has_pending_config(self) -> bool:
        """True if its log has a config that it does not know to be committed."""
        replica = self._replica
        return replica is not None and replica.status.config.op_id != replica.status.committed_config.op_id

    def view(self) -> ClusterView:
        """Return the view that the core plans with. A core that does not lead has one too."""
        return self.core._view()

    @property
    def _replica(self) -> Replica | None:
        return None if self._node is None else self._node.replicas.get(SYSTEM_TABLET)

    # -- starting and ending ---------------------------------------------------------------------

    def start(self) -> None:
        """Start a process if none runs, unless an operator has switched it off."""
        if self.endpoint.up or self.is_off:
            return
        self.epoch += 1
        self._clock.start()
        process = Process(
            self._world.scheduler, self._clock, f"{self.endpoint.name}.{self.epoch}", self._handle_exception
        )
        self.endpoint.begin(process)
        self._messenger = SimMessenger(self.node_id, self.endpoint, process, self._router, self._answered)
        incarnation_id = IncarnationId(f"{self.epoch:016x}")
        link = self._link = MasterLink(self.node_id, incarnation_id, self.endpoint, process, self._world, self._peers)
        run = MasterRun(
            seed=self._seed,
            position=self.position,
            number=self.epoch,
            node_id=self.node_id,
            config=self._config,
            profile=self._profile,
            world=self._world,
            committed_log=self._log,
            disk=self._disk,
            clock=self._clock,
            process=process,
            messenger=self._messenger,
            strike=self.strike,
            core_observer=self,
            replica_observer=self,
        )
        process.run(lambda: self._boot(MasterNodeRun(run, link)))

    def _boot(self, node: MasterNodeRun) -> None:
        try:
            node.start()
        except StelaeError as error:
            self._stop()
            self._disk = self._disk.clone()
            if self._disk.faults.capacity_bytes is None:
                self._world.report("healthy_masters", f"{self.endpoint.name} cannot start: {error!r}")
            self._world.scheduler.after(RETRY_US, f"{self.endpoint.name}.start", self.restart)
            return
        self._node = node
        self.set_busy(busy=self.is_busy)

    def crash(self) -> None:
        """Lose power: un-synced changes are lost, torn or reordered.

        Raises:
            PowerLost: the call is within a turn of the process, which ends with it.
        """
        if self.endpoint.in_turn:
            raise PowerLost(f"power lost on {self.endpoint.name}")
        self._stop()
        self._lose_power()

    def _lose_power(self) -> None:
        self._clock.lose_power()
        self._disk = self._disk.crash(self._rng)

    def lose_disk(self) -> None:
        """Lose power and everything on the disk. The directory is formatted anew, under the same uuid."""
        self.crash()
        self._disk = VirtualDisk()
        self._format()

    def restart(self) -> None:
        """Start again from the disk."""
        self.start()

    def _stop(self) -> None:
        self.endpoint.stop()
        self._node = self._link = self._messenger = None

    def _handle_exception(self, raised: BaseException) -> None:
        """Handle an exception that a turn of the process raised. The process has ended."""
        if not isinstance(raised, PowerLost):
            self._world.report(
                "no_exception", f"{self.endpoint.name}: {type(raised).__name__}: {raised}{where_raised(raised)}"
            )
        self._stop()
        self._lose_power()

    # -- faults ----------------------------------------------------------------------------------

    def fill_disk(self, *, full: bool) -> None:
        """Fill the disk except for a few bytes, or free its space again."""
        used_bytes = sum(len(data) for data in self._disk.tree().values())
        self._disk.faults.capacity_bytes = used_bytes + FULL_SLACK_BYTES if full else None

    def set_busy(self, *, busy: bool) -> None:
        """Make the timers of its driver late, or on time again."""
        self.is_busy = busy
        if self._node is not None:
            self._node.late_turns.late_us = self._profile.late_timer_us if busy else 0

    def hand_over(self, to: NodeId | None) -> None:
        """Make it transfer leadership of the system tablet, as an operator may do."""

        def transfer() -> None:
            if (replica := self._replica) is not None:
                replica.transfer(to, lambda error: self._world.coverage.hit(_transferred(error)))

        self.endpoint.receive(transfer)

    # -- messages --------------------------------------------------------------------------------

    def receive_message(self, message: FramesInFlight) -> None:
        """Process a message of another master, as a turn of the process."""
        if self._link is not None:
            self._link.receive(message)

    def receive_request(self, sender: NodeId, kind: str, body: bytes, answered: Answered) -> None:
        """Process a request, as a turn of the process. ``answered`` gets the answer when it is sent."""
        if self._messenger is not None:
            self._messenger.dispatch(sender, kind, body, answered)

    def _answered(self, kind: str) -> None:
        if kind in (CHANGE, READ):
            self.strike.pass_step(ChangeStep.ANSWERED)

    def action_sent(self, action: ServerAction) -> None:
        """Report to the armed fault that an action was sent."""
        if (step := sent_step(action)) is not None:
            self.member_strike.pass_step(step)
        self.strike.pass_step(ChangeStep.ACTED)

    # -- CoreObserver ----------------------------------------------------------------------------

    def core_applied(self, before: Catalog, event: EntryApplied | None) -> None:
        """An entry was applied; ``None`` for all entries of the first step."""
        self.on_applied(self, before)
        if event is not None and event.batch is not None and self.core.status().serving:
            if records_config(before, self.core.catalog):
                self.member_strike.pass_step(ChangeStep.CONFIG_RECORDED)
            self.strike.pass_step(ChangeStep.APPLIED)

    def core_received(self, heartbeat: Heartbeat) -> None:
        """A heartbeat was processed, or ignored as overtaken."""
        self.on_received(self, heartbeat)
        if self.core.status().serving and hears_config(self.core.catalog, heartbeat):
            self.member_strike.pass_step(ChangeStep.CONFIG_HEARD)

    def core_decided(self, event: Decided) -> None:
        """The outcome of a batch was processed."""
        self._world.coverage.hit(f"outcome.{event.outcome}")

    def core_stepped(self) -> None:
        """A step is over."""
        self.on_stepped(self)

    def core_answered(self, question: ReadAsked, within_us: int) -> None:
        """A read was answered."""
        self.on_answered(self, question, within_us)

    # -- ReplicaObserver -------------------------------------------------------------------------

    def status_changed(self, tablet_id: TabletId, before: Status, after: Status) -> None:
        """Do nothing: the committed log observes transitions."""

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        """Report a violation: no fault of these runs may lose the replica of a master."""
        self._world.report("healthy_masters", f"{self.endpoint.name}: the replica failed: {reason}")


def _transferred(error: StelaeError | None) -> str:
    return "transfer.done" if error is None else "transfer.refused"
