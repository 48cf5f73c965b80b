"""The suite bites: each bug that is planted in a copy transport is caught by the check that is named beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from stelae.spi.copy import Alive, FetchChunk, KeepAlive
from stelae.spi.copy_plan import Chunk, CopyPlan, CopySnapshot, Fences, Interruption, Refused
from stelae.spi.errors import Corrupt, StelaeError, Unavailable
from stelae.testing.conformance import copy_threads
from stelae.testing.conformance.copy import CopyConformance, CopyHarness
from stelae.testing.conformance.copy_failures import DAMAGES, SINK_ERRORS
from stelae_copy_streaming import StreamingTransport, copy_run, fetch_planner
from stelae_copy_streaming.copy_run import CopyRun
from stelae_copy_streaming.fetch_planner import FetchPlanner, Finish
from stelae_copy_streaming.fetch_source import FetchSource
from stelae_copy_streaming.fetched_item import FetchedItem
from stelae_copy_streaming.sessions import OpenSession, SessionTable
from stelae_copy_streaming.shared_limit import SharedLimit
from stelae_copy_streaming.source import StreamingSource
from stelae_copy_streaming.target import StreamingTarget
from stelae_copy_streaming.token_bucket import TokenBucket

C = CopyConformance
Check = Callable[[CopyConformance, CopyHarness], None]
BIT = DAMAGES["a flipped bit"]

_planner_init = FetchPlanner.__init__
_use, _opened, _admit, _end = SessionTable.use, SessionTable.opened, SessionTable.admit, SessionTable._end
_serve = StreamingSource._serve
_arrived = FetchedItem.arrived
_perform = CopyRun._perform
_fetch = CopyRun._fetch
_partial, _report = CopyRun._partial, CopyRun._report
_source_failed = FetchPlanner._source_failed
_read, _taken, _chunk = StreamingSource._read, StreamingSource._taken, StreamingSource._chunk
_run, _failed, _refusal_of = StreamingTarget.run, SessionTable.failed, fetch_planner.refusal_of
FULL, NO_SPACE = SINK_ERRORS[0]


def takes_damaged_chunks(chunk: Chunk, asked: Any) -> bool:
    return bool(chunk.offset == asked.offset) and 0 < len(chunk.data) <= asked.bytes_max


def takes_chunks_of_any_range(chunk: Chunk, asked: Any) -> bool:
    return True


def finishes_without_the_digest(self: CopyRun, unit: Any) -> None:
    sink: Any = self._sink
    sink.durable[unit.name] = bytes(sink.parts.pop(unit.name, b""))
    self._have[unit.name] = unit.digest


def blames_the_source_for_the_stage(self: FetchPlanner, item: str, detail: str) -> None:
    found = self._active[item]
    self._source_damaged(item, detail)
    self._restart(found)


def trusts_every_source_again(self: FetchPlanner, item: str, detail: str) -> None:
    self._restart(self._active[item])


def refetches_everything(self: CopyRun) -> Any:
    for unit in self._plan.items:
        self._sink.discard(unit.name)
    return {unit.name: 0 for unit in self._plan.items if unit.name not in self._have}


def forgets_what_is_durable(self: CopyRun, have: Mapping[str, str]) -> Any:
    return _fetch(self, {})


def trusts_any_digest(self: CopyRun, have: Mapping[str, str]) -> Any:
    digests = {unit.name: unit.digest for unit in self._plan.items if unit.name in have}
    return _fetch(self, digests)


def trusts_a_part(self: FetchPlanner, plan: CopyPlan, missing: Any, part_crcs: Any, **named: Any) -> None:
    _planner_init(self, plan, missing, part_crcs, **named)
    for item in self._waiting.values():
        item.unchecked = False


def accepts_every_part(self: FetchPlanner, item: FetchedItem, answer: Any) -> list[Any]:
    item.checking = item.unchecked = False
    return []


def never_expires(self: SessionTable, now_us: int) -> list[Any]:
    return []


def expires_in_the_table_only(self: SessionTable, now_us: int) -> list[Any]:
    """Releases the snapshot and frees the slot, but goes on to serve."""
    idle = [s for s in self._by_id.values() if not s.serving and now_us - s.used_us >= self._ttl_us]
    for session in idle:
        self._by_key.pop(session.key, None)
    return [session.content for session in idle if not vars_of(session).pop("bytes_sent", 0)]


def vars_of(session: OpenSession) -> dict[str, Any]:
    return {"bytes_sent": session.bytes_sent}


def expires_while_serving(self: SessionTable, now_us: int) -> list[Any]:
    return self._end([s for s in self._by_id.values() if now_us - s.used_us >= self._ttl_us])


def releases_while_serving(self: SessionTable, sessions: Any) -> list[Any]:
    _end(self, sessions)
    return [session.content for session in sessions]


def forgets_to_release(self: SessionTable, session: OpenSession, bytes_sent: int, now_us: int) -> None:
    session.serving -= 1
    session.used_us = max(session.used_us, now_us)
    session.bytes_sent += bytes_sent


def keep_alive_is_not_noted(self: SessionTable, session: OpenSession, bytes_sent: int, now_us: int) -> Any:
    session.serving -= 1
    session.bytes_sent += bytes_sent
    return session.content if session.ended and not session.serving else None


def serves_any_peer(self: SessionTable, session_id: str, peer: Any) -> OpenSession:
    return _use(self, session_id, self._by_id[session_id].key.peer if session_id in self._by_id else peer)


def has_endless_slots(self: SessionTable, key: Any, now_us: int) -> Any:
    self._slots_max += 1
    return _admit(self, key, now_us)


def keeps_the_slot_of_a_failure(self: SessionTable, key: Any) -> None:
    return None


def keeps_the_slot_of_an_ended_session(self: SessionTable, sessions: Any) -> Any:
    self._slots_max -= len(sessions)
    return _end(self, sessions)


def opens_what_was_ended(self: SessionTable, key: Any, content: Any, now_us: int) -> Any:
    self._taking[key] = False
    return _opened(self, key, content, now_us)


def takes_a_snapshot_each_time(self: SessionTable, key: Any, now_us: int) -> Any:
    found = self._by_key.pop(key, None)
    if found is not None:
        del self._by_id[found.id]
    return _admit(self, key, now_us)


def numbers_from_one_again(self: SessionTable, slots_max: int, ttl_us: int, incarnation: str) -> None:
    _session_init(self, slots_max, ttl_us, "run")


_session_init = SessionTable.__init__


def sends_a_wrong_checksum(self: StreamingSource, session: OpenSession, request: Any) -> Any:
    answer = _serve(self, session, request)
    return Chunk(offset=answer.offset, data=answer.data, crc=0) if isinstance(answer, Chunk) else answer


def ignores_the_item(self: StreamingSource, session: OpenSession, request: Any) -> Any:
    if isinstance(request, KeepAlive) or request.item in session.sizes:
        return _serve(self, session, request)
    return Alive()


def bypasses_the_limit(self: TokenBucket, size_bytes: int, now_us: int) -> int:
    return 0


def gives_up_at_a_limit(self: FetchSource, error: Any, now_us: int) -> None:
    self.lose(Interruption.SOURCE_LOST, error.code, str(error))


def never_gives_up(self: FetchSource, error: Any, now_us: int) -> None:
    self.not_before_us = now_us + 100_000


def bypasses_the_caller(self: CopyRun, size_bytes: int) -> int:
    return self._take(size_bytes)


def knows_no_fence(self: Fences, snapshot: CopySnapshot) -> None:
    return None


def never_keeps_alive(self: FetchSource) -> int:
    return 1 << 62


def writes_in_order_of_arrival(self: FetchedItem, offset: int, asked_bytes: int, data: bytes) -> Any:
    self.stored += len(data)
    return [(offset, data)]


def drops_the_rest_of_a_short_chunk(self: FetchedItem, offset: int, asked_bytes: int, data: bytes) -> Any:
    return _arrived(self, offset, len(data), data)


def counts_a_chunk_twice(self: CopyRun, planner: FetchPlanner, call: Any) -> None:
    _perform(self, planner, call)
    if isinstance(call, Finish):
        planner.bytes_left -= 1


def has_no_target_slots(self: StreamingTarget, tablet_id: Any) -> None:
    self._slots.add(tablet_id)


def calls_every_failed_read_damage(self: FetchPlanner, error: StelaeError, now_us: int, request: Any) -> None:
    if isinstance(StelaeError.by_code.get(str(getattr(error, "remote_code", ""))), type):
        self._source_damaged("", str(error))
    else:
        _source_failed(self, error, now_us, request)


def knows_damage_by_its_class(self: FetchPlanner, error: StelaeError, now_us: int, request: Any) -> None:
    """What would do if errors were not sent over the wire."""
    if isinstance(error, Corrupt):
        self._source_damaged(request.item.unit.name, str(error))
    else:
        self._source.failed(Unavailable(str(error)), now_us)


def reads_under_its_lock(self: StreamingSource, session: OpenSession, *read: Any) -> bytes:
    with self._lock:
        return _read(self, session, *read)


def takes_under_its_lock(self: StreamingSource, key: Any, take: Callable[[], Any]) -> Any:
    def locked() -> Any:
        with self._lock:
            return take()

    return _taken(self, key, locked)


def reads_whole_items(self: StreamingSource, session: OpenSession, item: str, offset: int, wanted: int) -> bytes:
    return session.content.read(item, 0, session.sizes[item])[offset : offset + wanted]


def counts_no_chunk_that_waits(self: FetchPlanner) -> int:
    return self._source.in_flight


def has_a_limit_for_each_copy(self: StreamingTarget, *args: Any, **named: Any) -> Any:
    self._limit = SharedLimit(self._limit.configured, 0, self._clock)
    return _run(self, *args, **named)


def has_a_limit_for_each_session(self: StreamingSource, session: OpenSession, *request: Any) -> Any:
    made = SharedLimit(self._limit.configured, 0, self._clock)
    self._limit = LIMITS.setdefault((id(self), session.id), made)
    return _chunk(self, session, *request)


LIMITS: dict[Any, SharedLimit] = {}


def forgets_the_failure_of_an_ended_take(self: SessionTable, key: Any) -> None:
    if not self._taking[key]:
        _failed(self, key)


def lets_errors_of_the_stage_out(self: CopyRun, have: Mapping[str, str]) -> Any:
    return self._fetch(have)


def calls_a_full_stage_failed(self: CopyRun, why: Interruption, reason: str) -> Any:
    return _partial(self, Interruption.STAGE_FAILED if why is Interruption.NO_SPACE else why, reason)


def begins_at_zero(self: CopyRun, planner: FetchPlanner) -> None:
    self._bytes_total = sum(unit.size_bytes for unit in self._plan.items if unit.name not in self._have)
    _report(self, planner)


def names_a_fence_as_it_likes(plan: CopyPlan) -> Any:
    found = _refusal_of(plan)
    return found and Refused(code="BEHIND", reason=found.reason)


def speaks_only_of_itself(self: StreamingSource, session: OpenSession, request: Any) -> Any:
    """Its chunks have no checksum: its own target does not look at it."""
    answer = _serve(self, session, request)
    return Chunk(offset=answer.offset, data=answer.data, crc=0) if isinstance(answer, Chunk) else answer


PARTS: list[tuple[Any, str, Any, Any]] = [
    (
        fetch_planner,
        "_undamaged",
        takes_damaged_chunks,
        partial(C.test_a_chunk_that_arrives_damaged_is_fetched_again_and_only_that_one, damage=BIT),
    ),
    (
        fetch_planner,
        "_undamaged",
        takes_chunks_of_any_range,
        partial(
            C.test_a_chunk_that_arrives_damaged_is_fetched_again_and_only_that_one, damage=DAMAGES["another offset"]
        ),
    ),
    (
        CopyRun,
        "_finish",
        finishes_without_the_digest,
        C.test_an_item_that_differs_from_its_digest_at_the_source_is_never_durable,
    ),
    (
        FetchPlanner,
        "not_as_digest",
        trusts_every_source_again,
        C.test_an_item_that_differs_from_its_digest_at_the_source_is_never_durable,
    ),
    (CopyRun, "_missing", refetches_everything, C.test_without_any_source_the_copy_ends_and_can_be_resumed),
    (CopyRun, "_missing", refetches_everything, C.test_a_session_that_ends_in_the_middle_is_said_and_the_copy_resumes),
    (CopyRun, "_fetch", forgets_what_is_durable, C.test_durable_items_are_not_fetched_again),
    (CopyRun, "_fetch", trusts_any_digest, C.test_an_item_that_is_durable_with_another_digest_is_fetched),
    (
        FetchPlanner,
        "__init__",
        trusts_a_part,
        partial(C.test_a_part_that_is_wrong_is_fetched_again_and_only_that_item, stored=3 * 4096),
    ),
    (FetchPlanner, "__init__", trusts_a_part, C.test_no_byte_of_a_part_is_asked_for_before_it_is_checked),
    (
        FetchPlanner,
        "_part_checked",
        accepts_every_part,
        partial(C.test_a_part_that_is_wrong_is_fetched_again_and_only_that_item, stored=3 * 4096),
    ),
    (CopyRun, "_missing", refetches_everything, C.test_a_copy_goes_on_from_another_source_in_the_middle_of_an_item),
    (SessionTable, "expire", never_expires, C.test_expiry_frees_the_slot_and_the_snapshot),
    (SessionTable, "expire", expires_in_the_table_only, C.test_expiry_frees_the_slot_and_the_snapshot),
    (
        SessionTable,
        "expire",
        expires_while_serving,
        C.test_a_request_that_is_served_slowly_does_not_let_the_session_expire,
    ),
    (SessionTable, "done", keep_alive_is_not_noted, C.test_a_session_that_is_used_or_kept_alive_does_not_expire),
    (SessionTable, "done", keep_alive_is_not_noted, C.test_a_session_is_shown_with_its_id_and_how_long_it_was_idle),
    (SessionTable, "done", forgets_to_release, C.test_a_session_that_ends_during_a_request_is_released_after_it),
    (SessionTable, "_end", releases_while_serving, C.test_a_session_that_ends_during_a_request_is_released_after_it),
    (
        SessionTable,
        "_end",
        keeps_the_slot_of_an_ended_session,
        C.test_beyond_the_slots_a_copy_is_refused_without_a_snapshot,
    ),
    (SessionTable, "_end", keeps_the_slot_of_an_ended_session, C.test_expiry_frees_the_slot_and_the_snapshot),
    (SessionTable, "use", serves_any_peer, C.test_a_session_serves_only_its_peer),
    (SessionTable, "admit", has_endless_slots, C.test_beyond_the_slots_a_copy_is_refused_without_a_snapshot),
    (SessionTable, "admit", takes_a_snapshot_each_time, C.test_beginning_again_returns_the_same_session_and_snapshot),
    (SessionTable, "failed", keeps_the_slot_of_a_failure, C.test_a_snapshot_that_cannot_be_taken_costs_no_slot),
    (
        SessionTable,
        "opened",
        opens_what_was_ended,
        C.test_a_tablet_that_ends_while_its_snapshot_is_taken_gets_no_session,
    ),
    (SessionTable, "__init__", numbers_from_one_again, C.test_no_id_is_used_twice_also_after_a_restart),
    (StreamingSource, "_serve", sends_a_wrong_checksum, C.test_chunks_have_the_bytes_and_their_checksum),
    (
        StreamingSource,
        "_serve",
        ignores_the_item,
        partial(
            C.test_a_request_outside_of_the_snapshot_is_refused_and_the_session_goes_on,
            request_of=lambda session: FetchChunk(session, "rows/b", 0, 10),
        ),
    ),
    (TokenBucket, "take", bypasses_the_limit, C.test_the_limit_of_the_source_holds),
    (TokenBucket, "take", bypasses_the_limit, C.test_the_limit_of_the_target_holds),
    (FetchSource, "failed", gives_up_at_a_limit, C.test_a_source_at_its_limit_is_waited_for),
    (FetchSource, "failed", gives_up_at_a_limit, C.test_lost_requests_are_repeated),
    (FetchSource, "failed", never_gives_up, C.test_without_any_source_the_copy_ends_and_can_be_resumed),
    (CopyRun, "_wait_us", bypasses_the_caller, C.test_a_paused_copy_fetches_nothing_and_keeps_its_session),
    (CopyRun, "_wait_us", bypasses_the_caller, C.test_the_caller_admits_every_byte_that_is_fetched),
    (Fences, "refusal", knows_no_fence, C.test_a_source_below_a_fence_is_refused_and_asked_for_nothing),
    (FetchSource, "keep_alive_due_us", never_keeps_alive, C.test_a_paused_copy_fetches_nothing_and_keeps_its_session),
    (
        FetchSource,
        "keep_alive_due_us",
        never_keeps_alive,
        C.test_the_session_of_a_copy_that_waits_for_its_turn_is_kept_alive,
    ),
    (
        FetchedItem,
        "arrived",
        writes_in_order_of_arrival,
        C.test_interrupted_copies_end_with_exactly_the_items_of_the_snapshot,
    ),
    (FetchedItem, "arrived", drops_the_rest_of_a_short_chunk, C.test_a_short_chunk_is_used_and_the_rest_is_asked_for),
    (CopyRun, "_perform", counts_a_chunk_twice, C.test_progress_counts_bytes_up_to_the_total_and_expects_an_end),
    (StreamingTarget, "reserve", has_no_target_slots, C.test_the_slots_of_the_target_are_bounded),
    (
        FetchPlanner,
        "_source_failed",
        calls_every_failed_read_damage,
        C.test_a_source_that_fails_to_read_is_not_called_damaged,
    ),
    (FetchPlanner, "_source_failed", knows_damage_by_its_class, C.test_a_source_that_cannot_read_its_item_is_damaged),
    (StreamingSource, "_read", reads_under_its_lock, C.test_while_an_item_is_read_slowly_the_other_methods_go_on),
    (StreamingSource, "_read", reads_under_its_lock, C.test_while_a_part_is_checked_slowly_the_other_methods_go_on),
    (StreamingSource, "_taken", takes_under_its_lock, C.test_while_a_snapshot_is_taken_slowly_the_other_methods_go_on),
    (StreamingSource, "_read", reads_whole_items, C.test_a_request_reads_no_more_of_an_item_than_it_names),
    (
        FetchPlanner,
        "_chunks_waiting",
        counts_no_chunk_that_waits,
        C.test_while_one_chunk_is_late_only_so_many_others_are_asked_for,
    ),
    (StreamingTarget, "run", has_a_limit_for_each_copy, C.test_the_limit_of_the_target_holds_for_all_copies_together),
    (
        StreamingSource,
        "_chunk",
        has_a_limit_for_each_session,
        C.test_the_limit_of_the_source_holds_for_all_sessions_together,
    ),
    (
        SessionTable,
        "failed",
        forgets_the_failure_of_an_ended_take,
        C.test_a_tablet_that_ends_while_its_snapshot_fails_can_be_copied_later,
    ),
    (
        CopyRun,
        "outcome",
        lets_errors_of_the_stage_out,
        partial(C.test_a_stage_that_fails_in_any_call_ends_the_copy, method="finish", error=FULL, why=NO_SPACE),
    ),
    (
        CopyRun,
        "_partial",
        calls_a_full_stage_failed,
        partial(C.test_a_stage_that_fails_in_any_call_ends_the_copy, method="write", error=FULL, why=NO_SPACE),
    ),
    (CopyRun, "_report", begins_at_zero, C.test_progress_begins_with_what_earlier_runs_have_stored),
    (copy_run, "refusal_of", names_a_fence_as_it_likes, C.test_a_source_below_a_fence_is_refused_and_asked_for_nothing),
    (StreamingSource, "_serve", speaks_only_of_itself, C.test_it_copies_from_and_to_another_transport),
]
"""Where, what, its replacement, and the check that must fail."""


@pytest.fixture(autouse=True)
def a_call_that_hangs_is_noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_threads, "HANGS_AFTER_S", 0.2)


def _name(check: Any) -> str:
    return str(getattr(getattr(check, "func", check), "__name__", check))


@pytest.mark.parametrize(
    ("owner", "name", "bug", "check"), PARTS, ids=[f"{b.__name__}-{_name(c)}" for _, _, b, c in PARTS]
)
def test_the_suite_catches_a_planted_bug(
    owner: Any, name: str, bug: Any, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, bug)
    with pytest.raises((AssertionError, pytest.fail.Exception, StelaeError)):
        check(CopyConformance(), CopyHarness(StreamingTransport))


class IgnoresTheCancellation(CopyRun):
    def _fetch(self, have: Mapping[str, str]) -> Any:
        control: Any = self._control
        control.cancelled_when = lambda: False
        return super()._fetch(have)


@pytest.mark.parametrize(
    "check", [C.test_a_cancelled_copy_ends_soon_and_asks_for_nothing_more, C.test_a_paused_copy_can_be_cancelled]
)
def test_the_suite_catches_a_copy_that_ignores_its_cancellation(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stelae_copy_streaming.target.CopyRun", IgnoresTheCancellation)
    with pytest.raises(AssertionError):
        check(CopyConformance(), CopyHarness(StreamingTransport))
