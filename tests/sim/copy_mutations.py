"""The replacements of the mutants in ``copy_mutants``.

Each function takes the original function first, then the arguments of the call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from stelae.lifecycle.blocking_steps import Steps
from stelae.lifecycle.copy_guards import CopyRefusal, CopyRefusalCode, TargetState
from stelae.spi.consensus_events import MergeMetadata
from stelae.spi.ids import ZERO, NodeId
from stelae.spi.wal import Append
from tests.sim.mutations import Original


def apply_no_guard(original: Original, asked: Any, here: Any) -> None:
    return None


def set_aside_before_the_guards(original: Original, env: Any, asked: Any, look: Any) -> Steps[Any]:
    replica = env.node.replicas.get(asked.tablet_id)
    if replica is not None:
        yield from env.manager.set_aside(replica, "a copy replaces it")
    return (yield from original(env, asked, look))


def drop_the_last_op_id(original: Original, *arguments: Any, **options: Any) -> Any:
    block = original(*arguments, **options)
    return msgspec.structs.replace(block, tombstone=ZERO) if block.tombstone is not None else block


def write_the_log_without_sync(original: Original, wal: Any, log: Any, entries: Any, commit_hint: int) -> None:
    wal.commit({log: Append(entries=tuple(entries), commit_hint=commit_hint)}, sync=False)


def verify_nothing(original: Original, self: Any, cancelled: Any = None) -> list[str]:
    """Trust the names of the items."""
    self.close()
    return []


def end_the_session_at_once(original: Original, self: Any, tablet_id: Any, one: Any) -> bool:
    return True


def copy_no_results(original: Original, *arguments: Any) -> Any:
    return msgspec.structs.replace(original(*arguments), results=b"")


def keep_the_flushed_op_id_of_the_log(original: Original, block: Any, *arguments: Any) -> Any:
    return msgspec.structs.replace(original(block, *arguments), flushed=block.flushed)


def begin_with_the_older_config(original: Original, given: Any, known: Any, node_id: NodeId) -> Any:
    return known


def bound_the_log_of_a_witness(original: Original, recovered: Any, bound: int) -> Any:
    block = msgspec.structs.replace(recovered.superblock, log_only=False)
    return original(replace(recovered, superblock=block), bound)


def promise_nothing(original: Original, known: Any, tombstone: Any) -> Any:
    return msgspec.structs.replace(tombstone, tombstone=ZERO)


def delete_whatever_was_seen(original: Original, self: Any, committed: Any, tablet_id: Any, seen: Any) -> None:
    return None


def refuse_for_damage(original: Original, asked: Any, here: Any) -> Any:
    damaged = here.state is TargetState.DAMAGED
    return CopyRefusal(CopyRefusalCode.OFFLINE, "it is damaged") if damaged else original(asked, here)


def clear_the_vote_at_a_merge(original: Original, self: Any, events: Any) -> None:
    for event in events:
        if isinstance(event, MergeMetadata) and event.term >= self._hard_state.term:
            self._set_hard_state(event.term, None)
        else:
            original(self, [event])


def adopt_the_vote_of_the_source(original: Original, self: Any, events: Any) -> None:
    """A voter that has not voted in the term of its source gets the source's vote. Here it is for an unknown node."""
    for event in events:
        voted = self._hard_state.term == getattr(event, "term", 0) and self._hard_state.voted_for is not None
        if isinstance(event, MergeMetadata) and event.term >= self._hard_state.term and not voted:
            self._set_hard_state(event.term, NodeId("f" * 32))
        else:
            original(self, [event])


def load_the_voter_at_term_zero(original: Original, self: Any, block: Any, record: Any) -> Any:
    return original(self, block, msgspec.structs.replace(record, term=0, voted_for=None))


def refuse_as_if_the_log_were_unknown(original: Original, self: Any, candidate: Any, request: Any) -> None:
    last, self._last = self._last, None
    try:
        original(self, candidate, request)
    finally:
        self._last = last


def forget_the_config_entry(original: Original, self: Any, index: int) -> None:
    """The log is collected up to what is flushed, whatever config is in the metadata."""
