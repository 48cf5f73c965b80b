"""Checks that reject a message that no correct peer can send, before it has any effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from stelae.spi.errors import Corrupt
from stelae.spi.ids import OpId
from stelae.spi.log import ENTRY_BYTES_MAX, Entry, EntryKind
from stelae.spi.members import TabletConfig, decode_config
from stelae.spi.recovery_epoch import is_too_far_ahead
from stelae_consensus_raft.messages import (
    NUMBER_MAX,
    AppendEntries,
    AppendReply,
    RaftMessage,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)


def _is_number(value: int) -> bool:
    return 0 <= value <= NUMBER_MAX


def _is_op_id(op_id: OpId) -> bool:
    return _is_number(op_id.term) and _is_number(op_id.index) and (op_id.term == 0) == (op_id.index == 0)


def term_error(term: int, own_term: int) -> str | None:
    """Return why no correct peer has this term, or ``None``."""
    if not _is_number(term):
        return "term out of range"
    return "term too many recoveries ahead" if is_too_far_ahead(term, own_term) else None


def message_error(message: RaftMessage, entries: Sequence[Entry], own_term: int) -> str | None:
    """Return why no correct peer sends this message to a replica in ``own_term``, or ``None``."""
    flaw = term_error(message.term, own_term)
    if flaw is not None:
        return flaw
    match message:
        case AppendEntries():
            return _append_error(message, entries)
        case AppendReply():
            numbers = (message.match, message.commit, message.round, message.session, message.rejected)
            valid = all(map(_is_number, numbers)) and _is_op_id(message.hint)
        case VoteRequest():
            last = message.last
            valid = _is_number(message.attempt) and _is_op_id(last) and last.term < message.term
        case TimeoutNow():
            valid = message.term > 0
        case VoteReply():
            valid = _is_number(message.campaign_term) and _is_number(message.attempt)
        case _:
            assert_never(message)
    if entries:
        return "entries with a message that carries none"
    return None if valid else "number out of range"


def _append_error(message: AppendEntries, entries: Sequence[Entry]) -> str | None:
    prev = message.prev
    if not _is_op_id(prev) or not all(map(_is_number, (message.commit, message.round, message.session))):
        return "number out of range"
    if not 0 <= message.all_replicated <= message.commit:
        return "all-replicated index above the commit index"
    if message.term == 0 or prev.term > message.term:
        return "entry of a later term than the append"
    term, index = prev
    for entry in entries:
        index += 1
        op_term, op_index = entry.op_id
        if op_index != index:
            return "gap in entries"
        if op_term < term or op_term < 1:
            return "terms go back in the entries"
        if len(entry.body) > ENTRY_BYTES_MAX:
            return "entry too large"
        if entry.kind is EntryKind.CONFIG and config_of_entry(entry) is None:
            return "config entry without a usable config"
        term = op_term
    if term > message.term or index > NUMBER_MAX:
        return "entries of a later term than the leader's"
    return None


def config_of_entry(entry: Entry) -> TabletConfig | None:
    """Return the config in a ``CONFIG`` entry, or ``None`` if the entry holds no usable one."""
    try:
        config = decode_config(entry)
    except Corrupt:
        return None
    names = [member.node_id for member in config.members]
    if len(set(names)) != len(names) or not config.voters():
        return None
    return config
