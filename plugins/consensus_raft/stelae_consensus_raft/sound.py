"""Is a message possible at all? What no honest peer can send is refused before it has effects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from stelae.spi.consensus import TabletConfig, decode_config
from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.log import ENTRY_BYTES_MAX, Entry, EntryKind
from stelae_consensus_raft.messages import (
    NUMBER_MAX,
    AppendEntries,
    AppendReply,
    RaftMessage,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)


def _number(value: int) -> bool:
    return 0 <= value <= NUMBER_MAX


def _position(op_id: OpId) -> bool:
    return _number(op_id.term) and _number(op_id.index) and (op_id.term == 0) == (op_id.index == 0)


def flaw_of(message: RaftMessage, entries: Sequence[Entry]) -> str | None:
    """Return why no honest peer sends this, or ``None``. Looks at the message alone."""
    if not _number(message.term):
        return "term out of range"
    match message:
        case AppendEntries():
            return _flaw_of_append(message, entries)
        case AppendReply():
            numbers = (message.match, message.commit, message.round, message.rejected)
            sound = all(map(_number, numbers)) and _position(message.hint)
        case VoteRequest():
            last = message.last
            sound = _number(message.attempt) and _position(last) and last.term < message.term
        case TimeoutNow():
            sound = message.term > 0
        case VoteReply():
            sound = _number(message.campaign_term) and _number(message.attempt)
        case _:
            assert_never(message)
    if entries:
        return "entries beside a message that carries none"
    return None if sound else "number out of range"


def _flaw_of_append(message: AppendEntries, entries: Sequence[Entry]) -> str | None:
    prev = message.prev
    if not (_position(prev) and _number(message.commit) and _number(message.round)):
        return "number out of range"
    if not 0 <= message.all_replicated <= message.commit:
        return "replicated on all members beyond the commit index"
    if message.term == 0 or prev.term > message.term:
        return "append of a term before its own entries"
    term, index = prev
    for entry in entries:
        index += 1
        op_term, op_index = entry.op_id
        if op_index != index:
            return "gap in entries"
        if op_term < term or op_term < 1:
            return "terms go back within entries"
        if len(entry.body) > ENTRY_BYTES_MAX:
            return "entry too large"
        if entry.kind is EntryKind.CONFIG and config_of(entry) is None:
            return "config entry that is no config"
        term = op_term
    if term > message.term or index > NUMBER_MAX:
        return "entries of a term after the leader's"
    return None


def config_of(entry: Entry) -> TabletConfig | None:
    """The config that a ``CONFIG`` entry carries, or ``None`` if it carries no usable one."""
    try:
        config = decode_config(entry)
    except Corrupt:
        return None
    names = [member.node_id for member in config.members]
    if len(set(names)) != len(names) or not config.voters():
        return None
    return config
