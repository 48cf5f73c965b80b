"""One run: clients load a cluster while a nemesis breaks it, then everything is healed and judged.

1. The tables of the run are created, and the client processes start.
2. The nemesis injects faults until the time is over, the user interrupts, or something that must not happen ends the
   run: a node or a client process has ended by itself.
3. Everything is healed, and the clients end their operations. The masters replace what was on lost disks.
4. The cluster becomes whole, replicas are compared, and every row is read.
5. The history is judged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from stelae.client import AsyncClient, connect_async
from stelae.client.connection import Connection
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.local.demo_listener import DemoListener
from stelae.local.node_health import until_served
from stelae.protocol.catalog_names import SYSTEM_TABLET
from stelae.spi.errors import CallerError, StelaeError
from stelae.spi.ids import TabletId
from stelae_chaos.client_process import ClientTask, monotonic_us
from stelae_chaos.client_processes import ClientProcesses
from stelae_chaos.fault_kinds import KINDS
from stelae_chaos.fault_target import FaultTarget
from stelae_chaos.final_state import HEAL_TIMEOUT_S, read_everything, settle
from stelae_chaos.history import LastRows
from stelae_chaos.leader_watch import LeaderWatch
from stelae_chaos.nemesis import Nemesis, NodeDied
from stelae_chaos.operations import AnyOperation, ChaosFinding
from stelae_chaos.plan import planned_faults
from stelae_chaos.report import ChaosReport
from stelae_chaos.spans import FaultSpan
from stelae_chaos.tables import WORKLOADS, ChaosTables, TableNames, create_tables, drop_tables

START_TIMEOUT_S: Final = 120.0
REPLICAS: Final = 3
TICK_S: Final = 0.5


class NoFaultPossible(CallerError, code="NO_FAULT_POSSIBLE"):
    """None of the chosen kinds of faults is possible on the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run.

    Attributes:
        seconds: how long faults are injected.
        seed: of the plan and of the clients.
        kinds: the kinds of faults.
        clients: the number of client processes.
        name: what the names of the tables have in them.
        outlive: whether nodes that are started again continue to run after this process.
        disposable: whether what a node has stored may be destroyed.
        every_s: the time from the beginning of a fault to that of the next one, in seconds; ``None``: drawn.
    """

    seconds: float
    seed: int
    kinds: Sequence[str]
    clients: int
    name: str
    outlive: bool
    disposable: bool = False
    every_s: float | None = None


class ChaosRun:
    """One run on a cluster that was started.

    Args:
        cluster: the masters and tablet servers.
        options: what to do.
        listener: gets the progress and the events.

    Attributes:
        report: the results. Complete when :meth:`run` has returned.
    """

    def __init__(self, cluster: ClusterWithMasters, options: RunOptions, listener: DemoListener) -> None:
        self._cluster = cluster
        self._options = options
        self._listener = listener
        self._names = TableNames.of_run(options.name)
        self._stop = asyncio.Event()
        self._started_us = 0
        self.report = ChaosReport(seed=options.seed, left_out={})

    def interrupt(self) -> None:
        """End the faults now. The run heals the cluster and judges what it has."""
        self.report.interrupted = True
        self._stop.set()

    async def run(self) -> ChaosReport:
        """Carry out the run.

        Raises:
            StelaeError: the cluster does not serve, or the tables cannot be created. No fault was injected then.
        """
        self._listener.phase("waiting until the cluster serves")
        await until_served(self._cluster, START_TIMEOUT_S)
        async with AsyncExitStack() as stack:
            addresses = self._cluster.addresses
            client = await stack.enter_async_context(await connect_async(addresses, timeout_s=START_TIMEOUT_S))
            nodes = [node.address for node in self._cluster.nodes]
            connection = await stack.enter_async_context(await Connection.connect(nodes, timeout_s=START_TIMEOUT_S))
            target = FaultTarget(
                self._cluster.masters,
                self._cluster.servers,
                (),
                connection,
                outlive=self._options.outlive,
                disposable=self._cluster if self._options.disposable else None,
            )
            kinds = self._possible(target)  # Before there are tables: without any kind, none may be left.
            tablets = await self._create(client)
            target.tablets = tuple(tablets)
            await self._load(target, tablets, kinds)
            await self._retire_replaced(target)
            await self._judge(client)
        return self.report

    def _now_us(self) -> int:
        return monotonic_us() - self._started_us

    async def _create(self, client: AsyncClient) -> dict[TabletId, str]:
        """Create the tables; return the names of their tablets for people, by id."""
        self._listener.phase("creating the tables")
        await create_tables(client, self._names, min(REPLICAS, len(self._cluster.servers)))
        assert client.catalog is not None, "the cluster has masters"
        found: dict[TabletId, str] = {}
        for workload, name in zip(WORKLOADS, self._names.all(), strict=True):
            described = (await client.catalog.get_table(name)).tablets
            numbers = [f" {number}" for number in range(1, len(described) + 1)] if len(described) > 1 else [""]
            found |= {tablet.tablet_id: f"{workload}{n}" for tablet, n in zip(described, numbers, strict=True)}
        return found

    def _possible(self, target: FaultTarget) -> list[str]:
        """Return the chosen kinds that are possible on the target. The others are in the report."""
        why_not = {kind: KINDS[kind].why_not(target) for kind in self._options.kinds}
        self.report.left_out = {kind: why for kind, why in why_not.items() if why}
        for line in self.report.left_out_lines():
            self._listener.event(line)
        kinds = [kind for kind, why in why_not.items() if not why]
        if not kinds:
            raise NoFaultPossible("none of the chosen faults is possible here; choose others with --faults")
        return kinds

    async def _load(self, target: FaultTarget, tablets: dict[TabletId, str], kinds: Sequence[str]) -> None:
        """Let clients and the nemesis at the cluster until the time is over; then heal, and end the clients."""
        report, options = self.report, self._options
        self._listener.phase(f"starting {options.clients} client processes")
        self._started_us = monotonic_us()
        clients = ClientProcesses(self._record)
        plan = planned_faults(options.seed, kinds)
        nemesis = Nemesis(target, plan, self._now_us, self._on_fault, every_s=options.every_s)
        watch = LeaderWatch(target, {SYSTEM_TABLET: "masters", **tablets}, self._now_us)
        report.spans, report.leaders = nemesis.spans, watch.spans
        tasks: list[asyncio.Task[None]] = []
        try:
            await clients.start([self._task(number) for number in range(options.clients)])
            report.begin_us = self._now_us()
            until_us = report.begin_us + int(options.seconds * 1e6)
            tasks = [asyncio.create_task(work) for work in (clients.read(), nemesis.run(), watch.run())]
            await self._until(until_us, tasks)
            report.end_us = self._now_us()
            self._listener.phase("healing the cluster")
            nemesis.stop()
            clients.stop()
            both = await asyncio.gather(*tasks[:2], return_exceptions=True)
            for check, ended in zip(("clients", "faults"), both, strict=True):
                self._note(check, ended)
            if tasks[2].done():
                self._note("leaders", tasks[2].exception())  # Otherwise it watches without end.
            target.start_exited()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await clients.kill()
            target.heal()

    def _task(self, number: int) -> ClientTask:
        return ClientTask(
            client=number,
            addresses=self._cluster.addresses,
            tables=self._names,
            seed=self._options.seed,
            started_us=self._started_us,
        )

    async def _until(self, until_us: int, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait until a time, an interruption, or the end of a task, and show the progress."""
        total = max(1, round(self._options.seconds))
        stopped = asyncio.create_task(self._stop.wait())
        try:
            while (left_us := until_us - self._now_us()) > 0:
                self._listener.phase("injecting faults", total - round(left_us / 1e6), total)
                wait_s = min(TICK_S, left_us / 1e6)
                done, _ = await asyncio.wait([stopped, *tasks], timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    return
        finally:
            stopped.cancel()

    def _record(self, operation: AnyOperation) -> None:
        self.report.history.add([operation])

    def _on_fault(self, span: FaultSpan) -> None:
        self._listener.event(f"{span.kind}: {span.detail}")

    def _note(self, task: str, ended: BaseException | None) -> None:
        """Add a finding for the error with which a task has ended: clients, faults, or leaders."""
        if isinstance(ended, StelaeError):
            check = "nodes" if isinstance(ended, NodeDied) else task
            self.report.findings.append(ChaosFinding(check=check, key="", fact=str(ended)))
        elif ended is not None:
            raise ended

    async def _retire_replaced(self, target: FaultTarget) -> None:
        """Wait until the masters have replaced what was on lost disks. Otherwise that is a finding."""
        self._listener.phase("waiting until what was on lost disks is replaced")
        problems = await target.retire_replaced(HEAL_TIMEOUT_S)
        self.report.findings += [ChaosFinding(check="health", key="", fact=problem) for problem in problems]
        self.report.disks_replaced = target.replaced_count

    async def _judge(self, client: AsyncClient) -> None:
        """Compare the replicas, read everything, and judge the history."""
        report = self.report
        self._listener.phase("waiting until the cluster is whole and its replicas agree")
        last: LastRows | None = None
        try:
            report.findings += await settle(
                client,
                self._names,
                self._cluster.check,
                # Somebody else's cluster may have them; and an addition that is cut short leaves one.
                spares_allowed=self._options.outlive or "change-members" in self._options.kinds,
            )
            report.settled = True
            self._listener.phase("reading every row")
            tables = await ChaosTables.open(client, self._names, START_TIMEOUT_S)
            last = await read_everything(tables, report.history, self._now_us)
        except StelaeError as error:
            fact = f"not every row can be read, so lost writes may not be found: {error}"
            report.findings.append(ChaosFinding(check="health", key="", fact=fact))
        self._listener.phase("judging the history")
        report.findings += await asyncio.to_thread(partial(report.history.judge, last))
        report.require_load()
        if report.clean and self._options.outlive:
            await self._drop(client)

    async def _drop(self, client: AsyncClient) -> None:
        """Drop the tables. If that fails, the report says so, and what was found is not lost."""
        self._listener.phase("dropping the tables of this run")
        try:
            await drop_tables(client, self._names)
        except StelaeError as error:
            fact = f"the tables of the run, {self._names.pattern}, cannot be dropped: {error}"
            self.report.findings.append(ChaosFinding(check="health", key="", fact=fact))
