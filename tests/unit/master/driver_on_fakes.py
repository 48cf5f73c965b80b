"""A master's driver on a node, a replica and a clock that do what a test says."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec

from stelae.host.hybrid_clock import ClockSettings, timestamp
from stelae.host.read_faults import ReadFaults
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.protocol.codec import encode
from stelae.protocol.master_heartbeats import HEARTBEAT, Heartbeat
from stelae.server.master.core.batches import SYSTEM_SCHEMA
from stelae.server.master.core.events import Event
from stelae.server.master.core.master_core import MasterCore
from stelae.server.master.driver.master import Master
from stelae.spi.consensus import Role
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, ClusterId, IncarnationId, NodeId, OpId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, TabletConfig
from tests.unit.master.master_with_servers import ME, OTHER, SETTINGS, WALL_US

THIRD = NodeId("c" * 32)
MEMBERS = tuple(Member(node_id=node_id, address=f"{node_id[0]}:1") for node_id in (ME, OTHER, THIRD))

FIRST_CONFIG = TabletConfig(op_id=ZERO, members=MEMBERS)


class StepLog(MasterCore):
    """The core, which notes the events of each step in ``steps``."""

    def __init__(self, steps: list[list[Event]], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._steps = steps

    def step(self, events: Sequence[Event]) -> None:
        """Note and step."""
        self._steps.append(list(events))
        super().step(events)


class ManualTurns:
    """Turns of a loop whose time a test moves."""

    def __init__(self) -> None:
        self.time_us = 1_000_000
        self._deferred: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, SimpleNamespace]] = []
        self._count = 0

    def now_us(self) -> int:
        return self.time_us

    def defer(self, call: Callable[[], None]) -> None:
        self._deferred.append(call)

    def defer_last(self, call: Callable[[], None]) -> None:
        self._deferred.append(call)

    def call_at(self, when_us: int, call: Callable[[], None]) -> Any:
        self._count += 1
        timer = SimpleNamespace(call=call)
        timer.cancel = lambda: setattr(timer, "call", None)
        self._timers.append((when_us, self._count, timer))
        return timer

    def run(self, until_us: int) -> None:
        """Run what is due up to a time, each timer in a turn of its own."""
        self._run_deferred()
        while due := [timer for timer in self._timers if timer[0] <= until_us]:
            first = min(due, key=lambda timer: timer[:2])
            self._timers.remove(first)
            if first[2].call is not None:
                self.time_us = max(self.time_us, first[0])
                first[2].call()
                self._run_deferred()
        self.time_us = until_us

    def _run_deferred(self) -> None:
        while self._deferred:
            self._deferred.popleft()()


def _result_of(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return error


class DriverOnFakes:
    """A master on a node of fakes. ``applied``: the op id up to which its store has applied, and when it was stamped.
    ``committed``: the committed config of its replica.

    Attributes:
        steps: the events of each step of the core.
        calls: destination and kind of each call.
    """

    def __init__(
        self,
        applied: OpId = ZERO,
        stamped_us: int = 0,
        clock: ClockSettings | None = None,
        committed: TabletConfig | None = None,
        scan: Callable[[Any], Any] = lambda _spec: EmptyCursor(),
    ) -> None:
        self.steps: list[list[Event]] = []
        self.calls: list[tuple[NodeId, str]] = []
        self.added: list[NodeId] = []
        self.removed: list[NodeId] = []
        self.handlers: dict[str, Any] = {}
        self.turns = ManualTurns()
        store = SimpleNamespace(scan=scan)
        self.applier = SimpleNamespace(
            applied=applied, store=store, timestamp=timestamp(stamped_us) if stamped_us else 0, on_group=None
        )
        self.replica: Any = SimpleNamespace(
            applier=self.applier,
            status=SimpleNamespace(
                term=0, leader=None, role=Role.FOLLOWER, config=FIRST_CONFIG, committed_config=committed or FIRST_CONFIG
            ),
            failure="",
            on_status=None,
            read_index=lambda done: None,
            fail=lambda reason: None,
            read_faults=ReadFaults(lambda reason: None, lambda reason: None),
        )
        loader: Any = SimpleNamespace(delayed={})
        self.node = self._node(clock or ClockSettings())
        self.master = Master(
            self.node,
            loader=loader,
            create_tablet=lambda tablet, done: None,
            rng=random.Random(1),
            make_core=partial(StepLog, self.steps),
        )
        self.master.start()
        self.pass_us(0)

    def _node(self, clock: ClockSettings) -> Any:
        """The node of the master, whose only replica is that of the system tablet."""
        listen = SimpleNamespace(listen="a:1", advertise="")
        tablet = SimpleNamespace(members=MEMBERS, id=SYSTEM_TABLET, schema=SYSTEM_SCHEMA)
        config = SimpleNamespace(
            node=listen, tablet=tablet, extra={"master": SETTINGS}, cluster_id=ClusterId("test"), clock=clock
        )
        metrics = SimpleNamespace(count=lambda *_: None, gauge=lambda *_: None)
        scans = SimpleNamespace(run=lambda key, work, done: self.turns.defer(lambda: done(_result_of(work))))
        messenger = SimpleNamespace(
            serve=self.handlers.__setitem__,
            add_peer=lambda node, _address: self.added.append(node),
            remove_peer=self.removed.append,
            call=self._call,
        )
        time = SimpleNamespace(now=lambda: timestamp(WALL_US + self.turns.time_us), last=0)
        return SimpleNamespace(
            node_id=ME,
            address="a:1",
            config=config,
            messenger=messenger,
            metrics=metrics,
            turns=self.turns,
            time=time,
            scans=scans,
            replicas={SYSTEM_TABLET: self.replica},
            failed_tablets={},
        )

    def pass_us(self, delay_us: int) -> list[list[Event]]:
        """Let time pass; return the steps of the core meanwhile."""
        before = len(self.steps)
        self.turns.run(self.turns.time_us + delay_us)
        return self.steps[before:]

    def elect(self, term: int, leader: NodeId | None) -> list[list[Event]]:
        """Have the replica see a term and a leader; return the steps of the core in the same moment."""
        status = self.replica.status
        status.term, status.leader = term, leader
        status.role = Role.LEADER if leader == ME else Role.FOLLOWER
        self.replica.on_status()
        return self.pass_us(0)

    def apply(self, op_id: OpId, stamped_us: int = WALL_US) -> list[list[Event]]:
        """Have the replica apply an entry without rows that was stamped at a time of the leader's hybrid clock, in
        microseconds. Return the steps of the core in the same moment."""
        self.applier.applied = op_id
        self.applier.on_group([Entry(op_id, EntryKind.NOOP, timestamp(stamped_us), b"")])
        return self.pass_us(0)

    def hear(self, server: NodeId) -> None:
        """Have a tablet server send a heartbeat."""
        heartbeat = Heartbeat(node_id=server, incarnation=IncarnationId("1"), sequence=1, address="s:1")
        request = SimpleNamespace(
            sender=server, kind=HEARTBEAT, body=[encode(heartbeat)], reply=lambda _: None, refuse=lambda _: None
        )
        self.handlers[HEARTBEAT](request)

    def ask(self, kind: str, body: msgspec.Struct) -> StelaeError | None:
        """Send a request; return the error with which the handler refuses it at once."""
        request = SimpleNamespace(
            sender=OTHER, kind=kind, body=[encode(body)], reply=lambda _: None, refuse=lambda _: None
        )
        try:
            self.handlers[kind](request)
        except StelaeError as error:
            return error
        return None

    def _call(self, to: NodeId, kind: str, frames: Sequence[bytes], *, deadline_ms: int) -> Any:
        self.calls.append((to, kind))
        return SimpleNamespace(add_done_callback=lambda call: None)


class EmptyCursor:
    """A scan of a store without rows."""

    def __enter__(self) -> list[Any]:
        return []

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""
