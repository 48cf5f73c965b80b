"""One simulated node across all its starts: its disk, its clock, and the faults that it suffers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Final

from stelae.host.metadata_files import decode
from stelae.host.replica import Replica
from stelae.host.superblock import SUPERBLOCK, DataState
from stelae.sim.clock import VirtualClock
from stelae.sim.disk import PowerLost, VirtualDisk
from stelae.sim.draw import below, between, chance, pick, skewed, stream
from stelae.sim.hosting.lost_files import remove_replica
from stelae.sim.hosting.replica_on_disk import ReplicaOnDisk
from stelae.sim.hosting.superblock_changes import rows_are_copied
from stelae.sim.hosting.work_durations import WorkDurations
from stelae.sim.log_model import LogModel
from stelae.sim.node_change import NodeChange
from stelae.sim.node_start import LAYOUT, STORE, TABLET, NodeContext, NodeStart, RunningNode, format_node
from stelae.sim.process import DurationRange, Process, where_raised
from stelae.sim.rows_damage import RowsDamage
from stelae.sim.scheduler import ScheduledEvent, Scheduler
from stelae.sim.stage_damage import StageDamage
from stelae.sim.world import ObservedNode
from stelae.spi.consensus import Status
from stelae.spi.errors import ClockError, StelaeError
from stelae.spi.ids import LogId, OpId, TabletId

SUPERBLOCK_PATH: Final = LAYOUT.superblock_of(TABLET)

RESTART_US: Final = (50_000, 2_000_000)
"""Shortest and longest time that a node stays down after a power loss within a disk operation."""

KILLED_US: Final = (5_000, 50_000)
"""Shortest and longest time that a node stays down after a kill within a disk operation."""

POWERED_US: Final = (1_000, 1_000_000)
"""Shortest and longest time from such a start to the loss of power."""

RETRY_US: Final = 400_000
"""Delay of the next attempt after a start that failed because of a full disk, or because the wall clock is
behind a timestamp that the node has assigned before."""

FULL_SLACK_BYTES_MAX: Final = 2_000
"""Largest space left on a full disk, so that the space runs out within an operation."""

OPEN_REACH_BYTES_MIN: Final = 2_000
"""Smallest damaged range of an open segment, which is its first half: several groups follow the range then."""


class SimNode:
    """One simulated node. Implements ``faults.FaultTarget``."""

    def __init__(self, context: NodeContext, scheduler: Scheduler, view: ObservedNode, error_us: int) -> None:
        self._context = context
        self._scheduler = scheduler
        self.view = view
        self._rng = stream(context.seed, f"node/{view.position}")
        drift_ppm = context.profile.clock_drift_ppm[view.position] if context.profile.clock_drift_ppm else 0
        self._clock = VirtualClock(scheduler, error_us=error_us, drift_ppm=drift_ppm)
        self._models: dict[LogId, LogModel] = {}
        self._extra_us = 0
        self._may_be_lost = False
        self._is_killed = False
        self._power_loss: ScheduledEvent | None = None
        self._rows_damage = RowsDamage(LAYOUT.data_of(TABLET))
        self._stage_damage = StageDamage(LAYOUT.stage_of(TABLET))
        self.has_lost_files = False
        """True once the files of the replica are gone. The node runs without it, and says that it does not host it."""
        self._backup: tuple[LogId, int, dict[str, bytes]] | None = None
        self._disk = self._observe_disk(VirtualDisk())
        self.running: RunningNode | None = None
        view.clock_ahead_us_max = self._clock.ahead_us_max
        format_node(context, context.node_ids[view.position], self._disk)

    # -- state -----------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        """True while a process runs, also if it is paused."""
        return self.running is not None

    @property
    def given_up(self) -> bool:
        """True once the replica is lost permanently."""
        return self.view.given_up

    @property
    def replica(self) -> Replica | None:
        """The replica, if a process runs that hosts one and it has not failed."""
        replica = self.running.replica if self.running is not None else None
        return None if replica is None or replica.failure else replica

    def run(self, call: Callable[[], None]) -> None:
        """Run ``call`` as a turn of the process, if a process runs."""
        if self.running is not None:
            self.running.process.run(call)

    def describe(self) -> str:
        """Describe the state of the node in one line."""
        if self.given_up:
            return "given up"
        replica = self.replica
        if replica is None:
            return "up without a replica" if self.up else "down"
        status = replica.status
        peers = ", ".join(f"{p.state} {p.match_index}/{p.next_index} in flight {p.in_flight}" for p in status.peers)
        return (
            f"{status.role} of term {status.term}, last {status.last}, "
            f"durable {status.durable_index}, commit {status.commit}, "
            f"applied {replica.applier.applied}, suspended {replica.suspended} [{peers}]"
        )

    # -- starting and ending ---------------------------------------------------------------------

    def start(self) -> None:
        """Start a process if none runs and the replica was not lost permanently, or only its files are gone."""
        if self.up or (self.given_up and not self.has_lost_files):
            return
        self.view.starts += 1
        self._clock.start()
        label = f"n{self.view.position}.{self.view.starts}"
        process = Process(self._scheduler, self._clock, label, self._handle_exception)
        durations = WorkDurations(
            sync_us=lambda: self._slowed(self._context.profile.sync_us),
            metadata_us=lambda: self._slowed(self._context.profile.metadata_us),
            apply_us=lambda: self._context.profile.apply_us,
            read_us=lambda: self._context.profile.read_us,
        )
        boot = NodeStart(
            self._context, self.view, self.view.starts, self._disk, self._clock, process, self._models, durations
        )
        process.run(lambda: self._boot(boot))

    def crash(self) -> None:
        """Lose power: un-synced changes are lost, torn or reordered."""
        self._changed(NodeChange.CRASHED)
        self._clock.lose_power()
        self._disk = self._observe_disk(self._disk.crash(self._rng))
        self._end()
        self._save_backup()

    def crash_after(self, operations: int | None) -> None:
        """Lose power after the given number of further disk operations; ``None`` cancels this."""
        self._is_killed = False
        if self._power_loss is not None:
            self._power_loss.cancel()
        self._disk.faults.lose_power_after(operations=operations)

    def kill_after(self, operations: int, counted: str) -> None:
        """End the process before a disk operation, after the given number of operations whose name begins with
        ``counted``.

        It starts again soon, and finds changes that were not synced. A moment later power is lost."""
        self._is_killed = True
        self._disk.faults.lose_power_after(operations=operations, counted=counted)

    def kill(self) -> None:
        """End the process. The disk keeps everything that was written."""
        self._changed(NodeChange.KILLED)
        self._disk = self._observe_disk(self._disk.clone())
        self._end()
        self._save_backup()

    def stop(self) -> None:
        """End the process, because the run is over."""
        self._end()

    def pause(self) -> None:
        """Pause the process."""
        if self.running is not None:
            self._changed(NodeChange.PAUSED)
            self.running.process.pause()

    def resume(self) -> None:
        """Resume the process, if it is paused."""
        if self.running is not None and self.running.process.paused:
            self._changed(NodeChange.RESUMED)
            self.running.process.resume()

    # -- disk and clock --------------------------------------------------------------------------

    def slow_disk(self, extra_us: int) -> None:
        """Make every sync and every save of metadata take up to so much longer."""
        if extra_us != self._extra_us:
            self._changed(NodeChange.DISK_SLOW if extra_us else NodeChange.DISK_NORMAL)
        self._extra_us = extra_us

    def fill_disk(self, *, full: bool) -> None:
        """Fill the disk except for a few bytes, or free its space again."""
        faults = self._disk.faults
        if full != (faults.capacity_bytes is not None):
            self._changed(NodeChange.DISK_FULL if full else NodeChange.DISK_FREED)
        if not full:
            faults.capacity_bytes = None
            return
        used_bytes = sum(len(data) for data in self._disk.tree().values())
        faults.capacity_bytes = used_bytes + between(self._rng, 0, FULL_SLACK_BYTES_MAX)

    def refuse_log_writes(self, *, refused: bool) -> None:
        """Let all writes of logs find no space, or find it again."""
        faults = self._disk.faults
        if refused != (faults.full_in is not None):
            self._changed(NodeChange.DISK_FULL if refused else NodeChange.DISK_FREED)
        faults.full_in = LAYOUT.wals if refused else None

    def fail_sync(self) -> None:
        """Make the next sync of the replicated log fail; if logs share their files, the next sync of any log."""
        if self.view.on_disk is not ReplicaOnDisk.WHOLE:
            return
        self._changed(NodeChange.SYNC_WILL_FAIL)
        self._allow_log_loss()
        shared = self._context.profile.logs[self.view.position] == "shared"
        for model in self._models.values() if shared else ():
            model.damaged = True
        self._disk.faults.fail_syncs(f"{LAYOUT.wals}/" if shared else f"{LAYOUT.wals}/{TABLET}/")

    def damage_log(self) -> None:
        """End the process, and flip a bit in a segment of the replicated log."""
        self.kill()
        segments = [(path, data) for path, data in self._log_files().items() if path.endswith(".seg")]
        # In the open segment, only the first half is damaged: the groups behind it prove that it was durable.
        reach = len(segments[-1][1].rstrip(b"\0")) // 2 if segments else 0
        path, data = segments[-1] if segments else ("", b"")
        if reach < OPEN_REACH_BYTES_MIN or (len(segments) > 1 and chance(self._rng, 0.5)):
            if len(segments) < 2:
                return
            path, data = pick(self._rng, segments[:-1])
            reach = len(data)
        self._disk.damage(path, below(self._rng, reach), 1 << below(self._rng, 8))
        self._allow_log_loss()
        self._context.coverage.hit("node.log_damaged")
        self._changed(NodeChange.LOG_DAMAGED)

    def restore_older_log(self) -> None:
        """End the process, and replace the replicated log by an older copy of it.

        The copy must lack entries that the store has flushed. The node could not detect any other older copy."""
        self.kill()
        if self._backup is None or self._backup[0] != self.view.log_id or self._backup[1] >= self.view.flushed.index:
            return
        disk = self._disk
        disk.faults.heal()
        for path in self._log_files():
            disk.remove(path)
        for path, data in self._backup[2].items():
            with closing(disk.create(path)) as file:
                file.pwritev([data], 0)
                file.sync()
        disk.sync_directory(f"{LAYOUT.wals}/{TABLET}")
        self._allow_log_loss()
        for log in self._logs():
            self._models[log].is_older_copy = True
        self._context.coverage.hit("node.log_older")
        self._changed(NodeChange.LOG_REPLACED)

    def lose_replica(self) -> bool:
        """End the process, and remove all files of a voter's replica. Return false if that cannot be done here.

        A replica without a vote stays: it may have voted before, and only its operator could know that it must
        not be created again (``durability.md`` rule 19)."""
        configs = self._context.facts.world.possible_configs()
        shared = self._context.profile.logs[self.view.position] == "shared"
        if shared or not all(self.view.node_id in config.voters() for config in configs):
            return False
        self.kill()
        remove_replica(self._disk, LAYOUT, TABLET)
        for log in self._logs():
            del self._models[log]
        self.view.on_disk, self.view.block = ReplicaOnDisk.NOTHING, None
        self.has_lost_files = True
        self._changed(NodeChange.FILES_LOST)
        self._give_up()
        return True

    def damage_rows(self) -> bool:
        """Change bytes of the stored rows, and read them. Return false if the read finds nothing wrong."""
        replica, found = self.replica, False

        def strike() -> None:
            nonlocal found
            assert replica is not None, "it was looked at before"
            self.view.rows_damaged = True
            found = self.view.rows_damaged = self._rows_damage.strike(self._disk, replica, self._rng)

        if replica is not None and self.view.on_disk is ReplicaOnDisk.WHOLE:
            self.run(strike)
        if not found:
            return False
        self._context.coverage.hit("node.rows_damaged")
        self._changed(NodeChange.ROWS_DAMAGED)
        return True

    def find_damage(self) -> None:
        """Read all rows, if they were damaged and the damage is still there."""
        self.run(self._find_damage)

    def _find_damage(self) -> None:
        replica = self.replica
        if replica is not None and self.view.on_disk is ReplicaOnDisk.WHOLE:
            self.view.rows_damaged = self._rows_damage.find(self._disk, replica)

    def has_copied_items(self) -> bool:
        """Return true if a process runs and the stage of a copy has complete items."""
        return self.up and bool(self._stage_damage.items(self._disk))

    def damage_stage(self) -> None:
        """End the process, and change bytes of a complete item in the stage of a copy."""
        self.kill()
        if self._stage_damage.strike(self._disk, self._rng):
            self._context.coverage.hit("node.stage_damaged")
            self._changed(NodeChange.STAGE_DAMAGED)

    def jump_clock(self, by_us: int, *, seen: bool) -> None:
        """Move the wall clock, while the node runs (``seen``) or while it is down.

        A running node notices a jump and distrusts its clock. A node that was down believes the new time."""
        self._changed(NodeChange.CLOCK_JUMPED)
        self._clock.jump(by_us)
        self.view.clock_ahead_us_max = self._clock.ahead_us_max
        if not seen:
            self.kill()
            self.start()

    def undo_clock_jumps(self) -> None:
        """Undo all jumps of the wall clock."""
        self._changed(NodeChange.CLOCK_CORRECTED)
        self._clock.undo_jumps()

    # -- ReplicaObserver -------------------------------------------------------------------------

    def status_changed(self, tablet_id: TabletId, before: Status | None, after: Status) -> None:
        """Do nothing: the tap on the core reports transitions."""

    def replica_failed(self, tablet_id: TabletId, before: str, reason: str) -> None:
        """Report a violation, unless damaged rows explain the failure, or a failed sync or damaged log. Those replicas
        are given up. A replica with damaged rows is copied in its place."""
        replica = self.running.replica if self.running is not None else None
        damaged = replica is not None and replica.read_faults.explain(reason)
        if self.view.rows_damaged and damaged and "invariant" not in reason:
            self.view.status = None
        elif self._may_be_lost and "invariant" not in reason:
            self._give_up()
            self.view.status = None
        else:
            self._report(
                "no_exception" if "a turn raised" in reason else "healthy_replicas", f"replica failed: {reason}"
            )

    # -- inside ----------------------------------------------------------------------------------

    def _boot(self, boot: NodeStart) -> None:
        try:
            self.running = boot.run(self)
            self._find_damage()
        except StelaeError as error:
            self._disk = self._observe_disk(self._disk.clone())
            self._end()
            if self._may_be_lost:
                self._give_up()
            elif not self._disk.faults.is_full and not isinstance(error, ClockError):
                self._report("healthy_replicas", f"cannot start: {error!r}")
            else:
                self._context.coverage.hit("node.start_refused")
                self._changed(NodeChange.START_FAILED)
                self._scheduler.after(RETRY_US, f"n{self.view.position}.start", self.start)

    def _handle_exception(self, raised: BaseException) -> None:
        """Handle an exception that a turn of the process raised. The process has ended."""
        if not isinstance(raised, PowerLost):
            self._report("no_exception", f"{type(raised).__name__}: {raised}{where_raised(raised)}")
            return
        killed = self._is_killed
        self._context.coverage.hit("node.killed_within" if killed else "node.power_lost_within")
        (self.kill if killed else self.crash)()
        delay_us = between(self._rng, *(KILLED_US if killed else RESTART_US))
        self._scheduler.after(delay_us, f"n{self.view.position}.start", self.start)
        if killed:
            delay_us += skewed(self._rng, *POWERED_US)
            self._power_loss = self._scheduler.after(delay_us, f"n{self.view.position}.power_lost", self._lose_power)

    def _lose_power(self) -> None:
        if self.up:
            self.crash()
        self.start()

    def _give_up(self) -> None:
        self._context.coverage.hit("node.given_up")
        self._changed(NodeChange.GIVEN_UP)
        self.view.given_up = True

    def _log_files(self) -> dict[str, bytes]:
        """Return the files of the replicated log, if it has a directory of its own."""
        return {p: d for p, d in self._disk.tree().items() if p.startswith(f"{LAYOUT.wals}/{TABLET}/")}

    def _save_backup(self) -> None:
        """Keep the first copy of the log that is taken while the node is down, with the highest index in it."""
        log, files = self.view.log_id, self._log_files()
        if log is None or (model := self._models.get(log)) is None or not files:
            return
        if self._backup is None or self._backup[0] != log:
            under_way = model.pending.entries if model.pending is not None else ()
            self._backup = log, model.last().index + len(under_way), files

    def _observe_disk(self, disk: VirtualDisk) -> VirtualDisk:
        """Report each use of a file of the disk after a failed sync of it. Return the disk."""
        facts = self._context.facts
        disk.faults.on_use_after_failed_sync = lambda operation, path: facts.used_after_failed_sync(
            self.view, operation, path
        )
        disk.replacing, disk.replaced = self._replacing, partial(self._replaced, disk)
        return disk

    def _replacing(self, path: str, data: bytes) -> None:
        if path == SUPERBLOCK_PATH:
            self._context.facts.superblock_begins(self.view, decode(SUPERBLOCK, data, path))

    def _replaced(self, disk: VirtualDisk, path: str, data: bytes) -> None:
        """Report a superblock, with the files of the store that are not durable."""
        if path == SUPERBLOCK_PATH:
            names = disk.listdir(STORE) if disk.exists(STORE) else []
            unsynced = [name for name in names if not disk.is_durable(f"{STORE}/{name}")]
            block = decode(SUPERBLOCK, data, path)
            if block.data_state is not DataState.READY and self.running is not None:
                self.running.store_files.set_aside()
            if rows_are_copied(self.view.block, block):
                self._judge_items(disk)
            self._context.facts.superblock_saved(self.view, block, self._models.get(block.log_id), unsynced)

    def _judge_items(self, disk: VirtualDisk) -> None:
        """Report damaged items that are part of a complete copy, or were."""
        if kept := self._stage_damage.kept(disk):
            self._context.facts.damage_installed(self.view, kept)

    def _logs(self) -> list[LogId]:
        """Return the logs of the tablet."""
        return [log for log in self._models if log.tablet_id == TABLET]

    def delete_replica(self, seen: OpId, done: Callable[[StelaeError | None], None]) -> None:
        """Ask the node to delete its replica, as a master that has seen the committed config ``seen`` without it."""
        running = self.running
        if running is not None:
            self._context.facts.deletion_asked(self.view, seen)
            running.hosting.delete(seen, done)

    def _allow_log_loss(self) -> None:
        """Allow the replica to refuse its log, and to fail, from now on."""
        self._may_be_lost = True
        for log in self._logs():
            self._models[log].damaged = True

    def _end(self) -> None:
        self._is_killed = False
        if self.running is not None:
            self.running.process.end()
        self.running = None
        self.view.status = None

    def _slowed(self, span: DurationRange) -> DurationRange:
        return span[0], span[1] + self._extra_us

    def _changed(self, change: NodeChange) -> None:
        self._context.facts.node_changed(self.view, change)

    def _report(self, invariant: str, detail: str) -> None:
        self._context.facts.report(invariant, f"node {self.view.position}: {detail}")
