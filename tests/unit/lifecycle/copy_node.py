"""A node that copies a tablet: real files on a virtual disk, real voters and state machines; sources and transport are
fakes that can be interrupted anywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import msgspec

from stelae.client.messenger_ports import QuietMetrics
from stelae.host.consensus_metadata import ConsensusMetadata, ConsensusRecord, HardStateWriter
from stelae.host.log_retention import LogRetentionLimit
from stelae.host.metadata_files import CrashPoints
from stelae.host.new_replica import LogStart, NewReplica
from stelae.host.peer_codec import PeerMessage, PeerMessageHeader
from stelae.host.peer_traffic import PeerTraffic
from stelae.host.read_faults import ReadFaults
from stelae.host.settings import TabletSettings
from stelae.host.start_copy import StartCopy
from stelae.host.superblock import DataState, PartitionBounds, Superblock, SuperblockFile
from stelae.lifecycle.blocking_steps import Steps
from stelae.lifecycle.copy_environment import CopyEnvironment
from stelae.lifecycle.copy_facts import CopyFacts, facts_of_export, facts_of_files
from stelae.lifecycle.copy_items import log_item, rows_item
from stelae.lifecycle.copy_log import log_pieces
from stelae.lifecycle.copy_rows import export_pieces
from stelae.lifecycle.copy_settings import StageSettings
from stelae.lifecycle.copy_states import CopyState
from stelae.lifecycle.tablet_copies import COPIED, TabletCopies
from stelae.lifecycle.tablet_copy import TabletCopy
from stelae.lifecycle.tablet_manager import TabletManager
from stelae.lifecycle.tombstones import Tombstones
from stelae.lifecycle.witness_over_tombstone import WitnessOverTombstone
from stelae.sim.disk import VirtualDisk
from stelae.spi.consensus import HardState
from stelae.spi.copy_plan import CopySnapshot
from stelae.spi.errors import StelaeError
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import Member, MemberType, TabletConfig, encode_config
from stelae.spi.wal import Append, SnapshotUnit
from stelae_consensus_raft.config import RaftConfig
from stelae_consensus_raft.engine import RaftEngine
from stelae_consensus_raft.messages import VoteReply, VoteRequest
from tests.conformance.durable_store import DurableStore
from tests.unit.lifecycle.copy_network import FakeNetwork, Served
from tests.unit.lifecycle.disk_node import LAST, LAYOUT, NODE, OTHER, SCHEMA, TABLET, DiskNode, ids, row

LEADER, FOLLOWER = NodeId("b" * 32), NodeId("c" * 32)
SOURCES = tuple(Member(node_id=node, address=f"{node[0]}:1") for node in (LEADER, FOLLOWER))
CONFIG = TabletConfig(op_id=OpId(4, 22), members=(Member(node_id=NODE, address="a:1"), *SOURCES))
BASE, END, TERM = OpId(3, 20), OpId(5, 26), 6


class Killed(BaseException):
    """The process ended here. No error handler catches it."""


class KillAt(CrashPoints):
    """Ends the process when a point is passed for the n-th time. Counts the points that were passed."""

    def __init__(self, point: str = "", nth: int = 1) -> None:
        self.point, self.left = point, nth
        self.passed: list[str] = []

    def hit(self, point: str) -> None:
        self.passed.append(point)
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                raise Killed(point)


def served(*, export: bool = False, further: int = 0, floor: int = 0) -> Served:
    """The snapshot of a source with the rows 1 to 20, and the entries 21 to 26 and ``further`` ones in its log.

    ``floor`` is the history floor of the source, as a hybrid timestamp."""
    node = DiskNode.with_rows(TABLET)
    log = LogId(TABLET, 1)
    entries = [row(index, 3) for index in range(10, 21)]
    node.wal.commit({log: Append(entries=tuple(entries), commit_hint=20)}, sync=True)
    recovered = node.recovered()[TABLET]
    recovered.store.set_history_floor(floor)
    edit = recovered.store.flush()
    assert edit is not None and edit.flushed == BASE
    block = msgspec.structs.replace(
        node.block(),
        table_name="the table",
        manifest=edit.manifest,
        flushed=edit.flushed,
        timestamp=recovered.timestamp,
        results=recovered.results.dump(),
    )
    tail = [row(21, 4), Entry(OpId(4, 22), EntryKind.CONFIG, 22 << 12, encode_config(CONFIG)), row(23, 4)]
    rest = [row(24, 5), row(25, 5), row(26, 5), *(row(index, 5) for index in range(27, 27 + further))]
    contents = {**dict(log_pieces(tail)), **dict(log_pieces(rest))}
    assert list(contents) == [log_item(21, 23), log_item(24, 26 + further)]
    if export:
        contents |= dict(export_pieces(recovered.store.export()))
        facts = facts_of_export(block, block, recovered.store.history_floor)
    else:
        file = edit.manifest.decode()
        contents[rows_item(file)] = node.disk.read_bytes(f"{LAYOUT.data_of(TABLET)}/{file}")
        facts = facts_of_files(block, DurableStore.files_format)
    snapshot = CopySnapshot(
        tablet_id=TABLET,
        log=log,
        base=BASE,
        last=OpId(5, 26 + further),
        term=TERM,
        committed_config=CONFIG,
        facts=facts.to_bytes(),
        items=tuple(
            SnapshotUnit(name=name, size_bytes=len(data), digest=hashlib.sha256(data).hexdigest())
            for name, data in contents.items()
        ),
    )
    return Served(snapshot, contents)


@dataclass(eq=False)
class _Timer:
    """A timer of the node. Tests let it fire."""

    when_us: int
    call: Callable[[], None]
    pending: list[_Timer]

    def cancel(self) -> None:
        if self in self.pending:
            self.pending.remove(self)


class Defect(BaseException):
    """A step raised what is no operating error. A node logs that, and a test could take it for what it expects."""


class _Manager(TabletManager):
    """The real one, but a replica of these tests has no parts that must be shut down."""

    def _run(self, tablet_id: TabletId, what: str, steps: Steps[None], done: Any, *, pool: Any = None) -> None:
        super()._run(tablet_id, what, _without_defects(steps), done, pool=pool)

    def shut_down(self, replica: Any) -> Steps[OpId]:
        self._node.peers._replicas.pop(replica.tablet_id)  # type: ignore[attr-defined]
        replica.shut_down()
        return LAST
        yield


def _without_defects(steps: Steps[None]) -> Steps[None]:
    try:
        yield from steps
    except (StelaeError, OSError):
        raise
    except Exception as error:
        raise Defect(f"{type(error).__name__}: {error}") from error


class CopyNode:
    """Brings the tablets of a disk up, and copies. Everything runs at once, in the caller's turn, except for timers."""

    def __init__(self, disk: VirtualDisk, network: FakeNetwork, crash: CrashPoints | None = None) -> None:
        self.disk = disk
        self.network = network
        self.crash = crash or CrashPoints()
        self.base = DiskNode(disk, self.crash)
        self.wal = self.base.wal
        self.loader = self.base.loader
        self.engines = replace(self.loader._engines, consensus=RaftEngine, consensus_config=RaftConfig())
        self.loader._engines = self.engines
        self.sent: list[tuple[TabletId, Any]] = []
        self.timers: list[_Timer] = []
        self.closed: list[LogId] = []
        self.on_loop = True  # False while work of a pool runs.
        self.now_us = 10**9
        self.peers = PeerTraffic(MagicMock(), MagicMock(), QuietMetrics(), 1, MagicMock())
        self.peers.send = lambda tablet, out, entries: self.sent.append((tablet, out))  # type: ignore[method-assign]
        self.hosted: dict[TabletId, ConsensusRecord] = {}
        self.metrics = SimpleNamespace(counts=[], count=lambda name, amount=1: self.metrics.counts.append(name))
        config = {kind: SimpleNamespace(name=name) for kind, name in _NAMES.items()}
        self.node: Any = SimpleNamespace(
            node_id=NODE,
            files=disk,
            layout=LAYOUT,
            peers=self.peers,
            replicas=self.peers._replicas,
            engines=self.engines,
            config=SimpleNamespace(**config),
            turns=SimpleNamespace(now_us=lambda: self.now_us, call_at=self._call_at),
            time=SimpleNamespace(last=0),
            writer=self,
            metadata_pool=self,
            copies=self,
            scans=self,
            hard_states=HardStateWriter(disk, LAYOUT, self),
            host=self._host,
            metrics=self.metrics,
        )
        self.recovered = {one.superblock.tablet_id: one for one in self.loader.recover_all()}
        self.manager = _Manager(self.node, self.loader)
        self.tombstones = Tombstones(self.node)
        self.tombstones.start()
        self.copies = TabletCopies(
            CopyEnvironment(
                node=self.node,
                loader=self.loader,
                manager=self.manager,
                tombstones=self.tombstones,
                sources=network,
                transport=network,  # type: ignore[arg-type]
                settings=StageSettings(rounds_max=2),
                check_facts=self.check_facts,
                crash=self.crash,
            )
        )

    def check_facts(self, facts: CopyFacts) -> None:
        assert facts.table_name == "the table"

    # -- what a node has: pools, log writer, timers ----------------------------------------------

    def run(self, key: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        self.on_loop = False
        result = _outcome(work)
        self.on_loop = True
        done(result)

    def submit_job(self, work: Callable[[Any], Any], done: Callable[[Any], None]) -> None:
        done(_outcome(lambda: work(self.wal)))

    def acknowledged(self, log: LogId) -> OpId:
        return self.wal.logs()[log].last

    def close_log(self, log: LogId) -> None:
        self.closed.append(log)

    def _call_at(self, when_us: int, call: Callable[[], None]) -> _Timer:
        timer = _Timer(when_us, call, self.timers)
        self.timers.append(timer)
        return timer

    def pass_time(self) -> None:
        """Let every timer fire that is set now."""
        timers, self.timers[:] = list(self.timers), []
        for timer in timers:
            timer.call()

    def pass_us(self, passed_us: int) -> None:
        """Let some time pass here and at the sources, and every timer fire that is due by then."""
        end_us = self.now_us + passed_us
        while due := [timer for timer in self.timers if timer.when_us <= end_us]:
            first = min(due, key=lambda timer: timer.when_us)
            self.timers.remove(first)
            self._move(first.when_us)
            first.call()
        self._move(end_us)

    def _move(self, now_us: int) -> None:
        self.network.pass_us(max(now_us - self.now_us, 0))
        self.now_us = max(now_us, self.now_us)

    def pass_all_time(self) -> None:
        while self.timers:
            self.pass_time()

    def _host(self, recovered: Any, *, campaign: bool = False) -> None:
        tablet = recovered.superblock.tablet_id
        self.hosted[tablet] = recovered.consensus
        self.recovered[tablet] = recovered
        self.peers.voters.pop(tablet, None)
        self.add_replica(tablet, recovered.superblock, recovered.consensus)

    def add_replica(self, tablet: TabletId, block: Superblock, consensus: ConsensusRecord, **changed: Any) -> Any:
        config = consensus.committed_config
        status = SimpleNamespace(
            term=consensus.term, committed_config=config, config=config, role="FOLLOWER", leader=LEADER, durable_index=0
        )
        replica: Any = SimpleNamespace(
            tablet_id=tablet,
            log=block.log_id,
            status=status,
            core=SimpleNamespace(status=lambda: status),
            failure="",
            read_faults=ReadFaults(lambda _reason: None, lambda _reason: None),
            flusher=SimpleNamespace(superblock=block, retention=LogRetentionLimit(0, 0, 0)),
            shut_down=lambda: None,
            receive=lambda sender, message: None,
        )
        vars(status).update(changed)
        self.peers._replicas[tablet] = replica
        return replica

    # -- what tests do and look at ---------------------------------------------------------------

    def ask(self, **changed: Any) -> TabletCopy | None:
        """Ask for a copy, as the leader does. Return it if it was begun, or refused by a guard."""
        started: list[TabletCopy] = []
        run = self.manager.run

        def noted(tablet_id: TabletId, what: str, steps: Any, done: Any, *, pool: Any) -> None:
            if what == COPIED:
                started.append(self.copies.running[tablet_id])
            run(tablet_id, what, steps, done, pool=pool)

        self.manager.run = noted  # type: ignore[method-assign]
        try:
            self.copies.start(msgspec.structs.replace(ASKED, **changed))
        finally:
            self.manager.run = run  # type: ignore[method-assign]
        return started[0] if started else None

    def refusal(self, **changed: Any) -> str:
        """Ask for a copy that is refused; return the code."""
        self.ask(**changed)
        self.pass_all_time()
        return self.copies._refusals[TABLET].partition(":")[0]

    def ask_until_end(self, **changed: Any) -> TabletCopy:
        copy = self.ask(**changed)
        assert copy is not None
        self.pass_all_time()
        assert copy.sequence.state is CopyState.ENDED
        return copy

    def begin_witness(
        self, start: LogStart, done: Callable[[StelaeError | None], None], config: OpId = CONFIG.op_id
    ) -> None:
        """Create a replica without rows, as a leader asks whose config has this op id."""
        new = TabletSettings(id=TABLET, schema=SCHEMA, members=())
        asked = NewReplica(
            tablet_id=TABLET,
            table_name="the table",
            schema=SCHEMA.to_bytes(),
            partition=PartitionBounds(),
            consensus="raft",
            config=config,
            log_only=start,
        )
        over = WitnessOverTombstone(self.node, self.loader, self.manager, self.tombstones)
        self.manager.create_log_only(new, start, done, lambda found: over.steps(new, asked, found))

    def block(self, tablet: TabletId = TABLET) -> Superblock:
        return SuperblockFile(self.disk, LAYOUT, tablet).load()

    def metadata(self) -> tuple[HardState, OpId]:
        found = ConsensusMetadata(self.disk, LAYOUT, TABLET).load()
        return found.hard_state, found.committed_config.op_id

    def vote(self, term: int, candidate: NodeId = LEADER, last: OpId = OpId(5, 99)) -> VoteReply | None:
        """Ask the voter of the tablet for its vote; ``None`` if there is no answer."""
        request = VoteRequest(term=term, last=last, attempt=1, pre=False, transfer=False)
        before = len(self.sent)
        self.peers._to_voter(candidate, PeerMessage(PeerMessageHeader(TABLET, 1, ZERO, ZERO), "vote", request, ()))
        answers = [out.message for _, out in self.sent[before:]]
        return answers[0] if answers else None


_NAMES = {"wal": "segmented", "consensus": "raft", "store": "durable"}

ASKED = StartCopy(
    to=NODE,
    leader=LEADER,
    term=TERM,
    tablet_id=TABLET,
    table_name="the table",
    consensus="raft",
    config=CONFIG.op_id,
    member_type=MemberType.VOTER,
    hosted=False,
    log_base=BASE,
    sources=SOURCES,
)


def _outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return error


# -- where a copy begins, and what is checked at its end -------------------------------------------


def tombstone_disk() -> VirtualDisk:
    """A node that deleted its replica: last op id 1.9, term 4, with a vote."""
    node = DiskNode.with_rows(TABLET, OTHER)
    node.delete()
    return node.disk.clone()


def never_disk() -> VirtualDisk:
    """A node that never had the tablet."""
    return DiskNode.with_rows(OTHER).disk.clone()


def lagging_disk() -> VirtualDisk:
    """A node whose replica lags behind the log of the leader."""
    return DiskNode.with_rows(TABLET, OTHER).disk.clone()


def check_complete(node: CopyNode, voted: HardState, further: int = 0) -> None:
    """The tablet is a READY replica with everything of the source, and nothing else is left of the copy."""
    block = node.block()
    assert block.data_state is DataState.READY and block.tombstone is None and block.quarantine is None
    assert block.flushed == BASE and block.table_name == "the table"
    assert node.metadata() == (voted, CONFIG.op_id)
    logs = [(log, state) for log, state in node.wal.logs().items() if log.tablet_id == TABLET]
    assert [log for log, _ in logs] == [block.log_id], "no log of another generation"
    assert [(state.base, state.last) for _, state in logs] == [(BASE, OpId(5, 26 + further))]
    assert not node.disk.exists(LAYOUT.stage_of(TABLET))
    again = CopyNode(node.disk.clone(), FakeNetwork({}))
    assert not again.loader.failed
    assert ids(again.recovered[TABLET]) == list(range(1, 21))
    assert again.recovered[TABLET].log.last == OpId(5, 26 + further)
    assert not again.disk.exists(LAYOUT.stage_of(TABLET))
    check_others(again)


def check_tombstone(node: CopyNode, voted: HardState, last: OpId = LAST) -> None:
    """The tablet is the tombstone that it was, and votes as it did."""
    block = node.block()
    assert block.data_state is DataState.DELETED and block.tombstone == last
    assert not block.manifest and not block.schemas
    assert node.metadata()[0] == voted
    check_nothing_is_installed(node)


def check_never(node: CopyNode) -> None:
    """The tablet does not exist on the node, and has no vote."""
    for path in (LAYOUT.superblock_of(TABLET), LAYOUT.consensus_of(TABLET)):
        assert not node.disk.exists(path)
    check_nothing_is_installed(node)
    assert node.vote(50) is None


def check_nothing_is_installed(node: CopyNode) -> None:
    assert TABLET not in node.recovered and TABLET not in node.peers.replicas
    assert not [log for log in node.wal.logs() if log.tablet_id == TABLET]
    assert not node.disk.exists(LAYOUT.data_of(TABLET))
    check_others(node)


def check_others(node: CopyNode) -> None:
    assert ids(node.recovered[OTHER]) == list(range(1, 10)), "nobody else is disturbed"
