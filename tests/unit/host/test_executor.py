"""The executor of Ready: nothing leaves before what it depends on is durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import msgspec

from stelae.host.entry_cache import EntryCache
from stelae.host.executor import ExecutorPorts, ReadyExecutor
from stelae.host.log_writer import CommitGroup, Completion, LogWriter
from stelae.host.new_replica import NewReplica
from stelae.host.start_copy import StartCopy
from stelae.spi.consensus import (
    Accepted,
    Beats,
    CopyRequest,
    Fatal,
    HardState,
    LogAppend,
    Outbound,
    Range,
    ReadReady,
    Ready,
)
from stelae.spi.consensus_events import Event, Persisted, PersistFailed, RangeCompacted, RangeSent
from stelae.spi.errors import ClockError, Compacted, Full, StelaeError, SyncFailed
from stelae.spi.ids import ZERO, LogId, NodeId, OpId, TabletId
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import TabletConfig
from stelae.spi.rejections import Rejection, RejectReason
from stelae.spi.wal import Durable, Failed

TABLET = TabletId("t")
LOG = LogId(TABLET, 1)
PEER = NodeId("b" * 32)
CONFIG = TabletConfig(op_id=ZERO, members=())


class Note(msgspec.Struct, frozen=True):
    text: str


def op(index: int, term: int = 1) -> OpId:
    return OpId(term, index)


def new_entry(index: int, term: int = 1, timestamp: int = 0) -> Entry:
    return Entry(op(index, term), EntryKind.WRITE, timestamp, b"x" * 10)


def append(*entries: Entry, replace_from: int | None = None) -> LogAppend:
    return LogAppend(entries=entries, replace_from=replace_from)


def say(text: str, term: int = 1) -> tuple[Outbound, ...]:
    return (Outbound(PEER, Note(text), term),)


class Bench:
    """An executor whose ports are played by hand; ``log`` is everything it did, in order."""

    def __init__(self, last: OpId = ZERO, queue_bytes_max: int = 1 << 20) -> None:
        self.log: list[str] = []
        self.drains = 0
        self.events: list[Event] = []
        self.saves: list[tuple[HardState, Callable[[StelaeError | None], None]]] = []
        self.reads: list[tuple[int, int, Callable[[list[Entry] | StelaeError], None]]] = []
        self.failures: list[Failed] = []
        self.cuts: list[int] = []
        self.retries: list[Callable[[], None]] = []
        self.stamp = 100
        self.clock_error: ClockError | None = None
        self.writer = LogWriter(
            lock=nullcontext(),
            wake=lambda: None,
            post=self._post,
            queue_bytes_max=queue_bytes_max,
            group_bytes_max=1 << 20,
        )
        self.writer.open_log(LOG, last)
        self.cache = EntryCache(last, 1 << 20)
        ports = ExecutorPorts(writer=self.writer, reader=self, hard_states=self, network=self, time=self)
        self.executor = ReadyExecutor(
            log=LOG,
            ports=ports,
            sink=self,
            cache=self.cache,
            hard_state=HardState(1, None),
            committed_config=CONFIG,
            range_bytes_max=200,
        )

    def run(self, *readies: Ready) -> None:
        for ready in readies:
            self.executor.execute(ready)

    def disk(self, failed: Failed | None = None) -> None:
        """Let the WAL thread do one group."""
        group = self.writer.take_work()
        assert isinstance(group, CommitGroup)
        outcome = failed or Durable(group.appends[LOG].entries[-1].op_id)
        self._post(self.writer.complete(group, {LOG: outcome}))

    def metadata(self, error: StelaeError | None = None) -> None:
        self.saves.pop(0)[1](error)

    def _post(self, completions: list[Completion]) -> None:
        for callback, argument in completions:
            callback(argument)

    # ports

    def now(self) -> int:
        if self.clock_error is not None:
            raise self.clock_error
        self.stamp += 1
        return self.stamp

    def save(
        self,
        tablet_id: TabletId,
        hard_state: HardState,
        committed_config: TabletConfig,
        done: Callable[[StelaeError | None], None],
    ) -> None:
        self.log.append(f"save {hard_state.term}/{hard_state.voted_for and 'voted'}")
        self.saves.append((hard_state, done))

    def read(
        self, log: LogId, first: int, end: int, bytes_max: int, done: Callable[[list[Entry] | StelaeError], None]
    ) -> None:
        self.reads.append((first, end, done))

    def send(self, tablet_id: TabletId, outbound: Outbound, entries: Sequence[Entry]) -> None:
        assert isinstance(outbound.message, Note)
        indexes = [entry.op_id.index for entry in entries]
        self.log.append(f"send {outbound.message.text}" + (f" {indexes}" if indexes else ""))

    def create_replica(self, to: NodeId, new: NewReplica) -> None:
        self.log.append(f"create replica on {to}")

    def start_copy(self, to: NodeId, asked: StartCopy) -> None:
        self.log.append(f"start copy to {to}")

    # sink

    def deliver(self, event: Event) -> None:
        self.events.append(event)

    def entries_changed(self, entries: tuple[Entry, ...], replace_from: int | None) -> None:
        self.log.append(f"entries {[e.op_id.index for e in entries]}")

    def entries_cut(self, from_index: int) -> None:
        self.cuts.append(from_index)

    def committed(self, index: int) -> None:
        self.log.append(f"commit {index}")

    def drained(self) -> None:
        self.drains += 1

    def accepted(self, token: int, op_id: OpId) -> None:
        self.log.append(f"accepted {token} at {op_id}")

    def rejected(self, rejection: Rejection) -> None:
        self.log.append(f"rejected {rejection.token}")

    def read_ready(self, ready: ReadReady) -> None:
        self.log.append(f"read {ready.token} at {ready.index}")

    def beats_changed(self, beats: Beats) -> None:
        self.log.append(f"beats {len(beats.peers)}")

    def copy_requested(self, request: CopyRequest) -> None:
        self.log.append(f"copy from {request.first_index}")

    def config_durable(self, config: TabletConfig) -> None:
        self.log.append(f"config {config.op_id} durable")

    def log_failed(self, failed: Failed) -> None:
        self.failures.append(failed)

    def metadata_failed(self, error: StelaeError, retry: Callable[[], None]) -> None:
        self.retries.append(retry)

    def fatal(self, effect: Fatal) -> None:
        self.log.append(f"fatal {effect.reason}")


def test_a_reply_waits_for_its_append_and_what_is_free_does_not() -> None:
    bench = Bench()
    bench.run(Ready(id=1, append=append(new_entry(1)), at_once=say("free"), after_persist=say("ack")))
    assert bench.log == ["send free", "entries [1]"] and bench.events == []
    bench.disk()
    assert bench.log[-1] == "send ack" and bench.events == [Persisted(1)]
    assert bench.executor.idle


def test_a_vote_is_durable_before_its_reply_and_before_any_later_append() -> None:
    bench = Bench()
    bench.run(
        Ready(id=1, hard_state=HardState(2, PEER), after_persist=say("vote", 2)),
        Ready(id=2, append=append(new_entry(1, 2)), at_once=say("later", 2)),
    )
    assert bench.log == ["save 2/voted"]
    assert bench.writer.take_work() is None, "the append waits for the hard state before it"
    bench.metadata()
    assert bench.log == ["save 2/voted", "send vote", "send later", "entries [1]"]
    assert bench.events == [Persisted(1)]


def test_a_hard_state_waits_until_every_earlier_append_is_durable() -> None:
    bench = Bench()
    bench.run(
        Ready(id=1, append=append(new_entry(1)), after_persist=say("ack")),
        Ready(id=2, hard_state=HardState(2, PEER), after_persist=say("vote", 2)),
    )
    assert bench.saves == []
    bench.disk()
    assert bench.log[-1] == "save 2/voted" and "send vote" not in bench.log


def test_a_reply_of_a_term_that_has_passed_is_dropped_but_its_durability_is_reported() -> None:
    bench = Bench()
    bench.run(
        Ready(id=1, append=append(new_entry(1)), after_persist=say("old ack", 1)), Ready(id=2, hard_state=HardState(2))
    )
    bench.disk()
    assert "send old ack" not in bench.log
    assert Persisted(1) in bench.events


def test_appends_are_pipelined_and_attested_in_order() -> None:
    bench = Bench()
    bench.run(
        Ready(id=1, append=append(new_entry(1)), after_persist=say("first")),
        Ready(id=2, append=append(new_entry(2)), after_persist=say("second")),
    )
    bench.disk()
    assert [line for line in bench.log if line.startswith("send")] == ["send first", "send second"]
    assert bench.events[-1] == Persisted(2)


def test_a_ready_with_nothing_durable_still_waits_its_turn_to_reply() -> None:
    bench = Bench()
    bench.run(Ready(id=1, append=append(new_entry(1))), Ready(id=2, after_persist=say("matched")))
    assert "send matched" not in bench.log
    bench.disk()
    assert bench.log[-1] == "send matched"
    assert bench.events == [Persisted(1)]


def test_who_waits_for_the_pipeline_to_drain_hears_of_it_whatever_stood_last_in_it() -> None:
    bench = Bench()
    bench.run(Ready(id=1, append=append(new_entry(1)), after_persist=say("ack")), Ready(id=2, commit=1))
    assert bench.drains == 0
    bench.disk()
    assert bench.drains == 1 and bench.events == [Persisted(1)]
    bench.run(Ready(id=3, commit=1))
    assert bench.drains == 2, "a Ready that has nothing to make durable drains at once"
    bench.run(Ready(id=4, hard_state=HardState(2)), Ready(id=5, commit=1))
    bench.metadata()
    assert bench.drains == 3


def test_own_entries_are_stamped_in_log_order_and_foreign_ones_keep_their_stamp() -> None:
    bench = Bench()
    bench.run(Ready(id=1, append=append(new_entry(1), new_entry(2), new_entry(3, timestamp=7))))
    stamps = [entry.timestamp for entry in bench.cache.get(1, 4, 1000) or []]
    assert stamps == [101, 102, 7]


def test_ranges_are_sent_before_the_own_disk_is_done_and_cut_at_the_byte_limit() -> None:
    bench = Bench()
    wanted = Range(PEER, Note("append"), 1, ZERO, op(4))
    bench.run(Ready(id=1, append=append(*(new_entry(n) for n in range(1, 5))), ranges=(wanted,)))
    assert bench.log == ["entries [1, 2, 3, 4]", "send append [1, 2]"]
    assert bench.events == [RangeSent(PEER, op(4), op(2))]


def test_a_range_whose_ends_changed_is_dropped_and_reported() -> None:
    bench = Bench()
    bench.run(Ready(id=1, append=append(new_entry(1), new_entry(2))))
    stale = Range(PEER, Note("append"), 1, op(1, 9), op(2))
    bench.run(Ready(id=2, ranges=(stale,)))
    beyond = Range(PEER, Note("append"), 1, op(1), op(3))
    bench.run(Ready(id=3, ranges=(beyond,)))
    assert not any(line.startswith("send") for line in bench.log)
    assert bench.events == [RangeSent(PEER, op(2), None), RangeSent(PEER, op(3), None)]


def test_old_entries_are_read_from_the_log_and_dropped_if_the_term_passed_meanwhile() -> None:
    bench = Bench(last=op(9))
    wanted = Range(PEER, Note("append"), 1, op(3), op(9))
    bench.run(Ready(id=1, ranges=(wanted,)))
    first, end, arrived = bench.reads[0]
    assert (first, end) == (4, 10)
    arrived([new_entry(n) for n in range(4, 8)])
    assert bench.log == ["send append [4, 5, 6, 7]"]
    assert bench.events == [RangeSent(PEER, op(9), op(7))]
    bench.run(Ready(id=2, ranges=(wanted,)), Ready(id=3, hard_state=HardState(2)))
    bench.reads[1][2]([new_entry(n) for n in range(4, 8)])
    assert bench.events[-1] == RangeSent(PEER, op(9), None)
    assert len([line for line in bench.log if line.startswith("send")]) == 1


def test_the_core_hears_that_entries_it_asked_for_have_been_collected() -> None:
    """It heard only that nothing was sent, and went on to ask for them."""
    bench = Bench(last=op(9))
    bench.run(Ready(id=1, ranges=(Range(PEER, Note("append"), 1, op(3), op(9)),)))
    bench.reads[0][2](Compacted((1, 5)))
    assert bench.events == [RangeCompacted(PEER, op(9), op(5))]


def test_a_failed_append_voids_everything_after_it_and_sends_nothing_of_it() -> None:
    bench = Bench()
    bench.run(
        Ready(id=1, append=append(new_entry(1)), after_persist=say("one")),
        Ready(id=2, append=append(new_entry(2)), after_persist=say("two")),
        Ready(id=3, after_persist=say("three")),
    )
    failed = Failed(SyncFailed("fsync"), ZERO)
    bench.disk(failed)
    assert not any(line.startswith("send") for line in bench.log)
    assert bench.events == [PersistFailed(1, 0)]
    assert bench.failures == [failed]
    assert bench.cuts == [1]
    assert bench.cache.end_index == 1
    assert bench.executor.idle


def test_a_vote_behind_a_failed_append_is_saved_all_the_same() -> None:
    bench = Bench()
    bench.run(
        Ready(id=1, append=append(new_entry(1))),
        Ready(id=2, hard_state=HardState(2, PEER), after_persist=say("vote", 2)),
    )
    bench.disk(Failed(Full("no space"), ZERO))
    assert bench.log[-1] == "save 2/voted"
    bench.metadata()
    assert "send vote" not in bench.log, "the core was told that this Ready will not be durable"
    assert bench.executor.idle


def test_after_a_failed_replacement_the_next_append_replaces_what_may_still_stand() -> None:
    bench = Bench(last=op(12))
    bench.run(Ready(id=1, append=append(new_entry(11, 2), replace_from=11)))
    bench.disk(Failed(Full("no space"), op(12)))
    assert bench.events == [PersistFailed(1, 10)]
    bench.writer.repair(LOG, lambda _result: None)

    class Engine:
        def repair(self, log: LogId) -> OpId:
            return op(12)

    work = bench.writer.take_work()
    assert work is not None
    bench._post(bench.writer.perform(work, Engine()))  # type: ignore[arg-type]
    bench.run(Ready(id=2, append=append(new_entry(11, 3))))
    group = bench.writer.take_work()
    assert isinstance(group, CommitGroup) and group.appends[LOG].replace_from == 11


def test_a_full_queue_stalls_the_pipeline_and_room_resumes_it() -> None:
    bench = Bench(queue_bytes_max=70)
    bench.run(
        Ready(id=1, append=append(new_entry(1)), after_persist=say("one")),
        Ready(id=2, append=append(new_entry(2)), at_once=say("free"), after_persist=say("two")),
        Ready(id=3, at_once=say("behind")),
    )
    assert bench.executor.stalled
    assert bench.log == ["entries [1]", "send free"]
    bench.disk()
    assert not bench.executor.stalled
    bench.disk()
    assert [line for line in bench.log if line.startswith("send")] == [
        "send free",
        "send one",
        "send behind",
        "send two",
    ]
    assert bench.events == [Persisted(1), Persisted(2)]


def test_a_clock_that_cannot_go_on_is_like_a_full_disk_and_leaves_no_slot_behind() -> None:
    bench = Bench()
    bench.clock_error = ClockError("the ceiling cannot be raised")
    bench.run(Ready(id=1, append=append(new_entry(1)), after_persist=say("ack")))
    assert isinstance(bench.failures[0].error, Full)
    assert bench.events == [PersistFailed(1, 0)] and bench.log == []
    assert bench.writer.queued_bytes == 0
    bench.clock_error = None
    bench.run(Ready(id=2, append=append(new_entry(1)), after_persist=say("ack")))
    bench.disk()
    assert bench.log[-1] == "send ack"


def test_a_committed_config_waits_until_its_own_entry_is_durable_here() -> None:
    bench = Bench()
    config = TabletConfig(op_id=op(1), members=())
    bench.run(Ready(id=1, append=append(new_entry(1)), commit=1, committed_config=config))
    assert bench.saves == []
    bench.disk()
    bench.metadata()
    assert bench.log[-1] == "config 1.1 durable"


def test_a_retry_of_an_older_config_does_not_undo_a_later_one() -> None:
    bench = Bench(last=op(2))
    first, second = (TabletConfig(op_id=op(n), members=()) for n in (1, 2))
    bench.run(Ready(id=1, commit=1, committed_config=first))
    bench.metadata(Full("no space"))
    bench.run(Ready(id=2, commit=2, committed_config=second))
    bench.metadata()
    bench.retries.pop()()
    assert bench.saves == [] and bench.log[-1] == "config 1.2 durable"


def test_metadata_that_cannot_be_saved_holds_everything_back_until_a_retry_succeeds() -> None:
    bench = Bench()
    bench.run(Ready(id=1, hard_state=HardState(2, PEER), after_persist=say("vote", 2)))
    bench.metadata(Full("no space"))
    assert bench.log == ["save 2/voted"] and bench.events == []
    bench.retries.pop()()
    bench.metadata()
    assert bench.log == ["save 2/voted", "save 2/voted", "send vote"]


def test_a_committed_config_is_saved_with_the_newest_submitted_hard_state() -> None:
    bench = Bench(last=op(1))
    config = TabletConfig(op_id=op(1), members=())
    bench.run(Ready(id=1, hard_state=HardState(3, PEER)))
    bench.run(Ready(id=2, commit=1, committed_config=config))
    assert [saved for saved, _ in bench.saves] == [HardState(3, PEER), HardState(3, PEER)]
    bench.metadata()
    bench.metadata()
    assert bench.log[-1] == "config 1.1 durable"


def test_a_fatal_effect_stops_everything_else_in_its_ready() -> None:
    bench = Bench()
    fatal = Fatal("truncated a committed entry", ("step 1",))
    bench.run(Ready(id=1, append=append(new_entry(1)), after_persist=say("ack"), fatal=fatal))
    assert bench.log == ["fatal truncated a committed entry"]
    assert bench.writer.take_work() is None


def test_every_other_effect_reaches_the_sink() -> None:
    bench = Bench()
    bench.run(
        Ready(
            id=1,
            append=append(new_entry(1)),
            accepted=(Accepted(5, op(1)),),
            rejections=(Rejection(6, RejectReason.NOT_LEADER),),
            reads_ready=(ReadReady(7, 1),),
            beats=Beats(1, (PEER,)),
            copy_requests=(CopyRequest(PEER, 1),),
            commit=1,
        )
    )
    assert bench.log == [
        "accepted 5 at 1.1",
        "entries [1]",
        "commit 1",
        "rejected 6",
        "beats 1",
        "read 7 at 1",
        "copy from 1",
    ]


def test_a_commit_waits_for_the_replacement_that_it_speaks_of() -> None:
    """Found by simulation: the entry that a new term replaced was applied in its stead, because
    the replacement waited for the term to be saved and the commit index did not."""
    bench = Bench()
    bench.run(Ready(id=1, append=append(new_entry(1))))
    replacement = append(new_entry(1, term=2, timestamp=7), replace_from=1)
    bench.run(Ready(id=2, hard_state=HardState(2, None), append=replacement, commit=1))
    assert not any(line.startswith("commit") for line in bench.log)
    bench.disk()
    bench.metadata()
    assert bench.log[-1] == "commit 1"
    assert bench.cache.op_id_at(1) == op(1, term=2)


def test_the_commit_hint_of_an_append_is_not_that_of_a_later_ready() -> None:
    """A hint that counts an entry which a later Ready replaces would apply it after a crash."""
    bench = Bench()
    bench.run(Ready(id=1, hard_state=HardState(2, None), append=append(new_entry(1))))
    replacement = append(new_entry(1, term=3, timestamp=7), replace_from=1)
    bench.run(Ready(id=2, append=replacement, commit=1))
    bench.metadata()
    hints = []
    while isinstance(group := bench.writer.take_work(), CommitGroup):
        hints.append(group.appends[LOG].commit_hint)
        bench.writer.complete(group, {LOG: Durable(group.appends[LOG].entries[-1].op_id)})
    assert hints == [0, 1]
