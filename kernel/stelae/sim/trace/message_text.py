"""Describes consensus messages in a few words.

The messages of Raft have words of their own. A message of another name is described by all its fields."""

from __future__ import annotations

from typing import Any

from stelae.sim.trace.message_kinds import short_name
from stelae.sim.trace.records import MessageSent, TraceKind


def message_text(message: MessageSent) -> str:
    """Describe a message without its sender and receiver."""
    fields = message.fields
    match short_name(message.name):
        case "vote":
            wish = "transfer vote?" if fields.get("transfer") else "pre-vote?" if fields.get("pre") else "vote?"
            return f"{wish} term {fields.get('term', 0)} last {_value(fields.get('last', 0))}"
        case "vote_reply":
            return _vote_reply(fields)
        case "append":
            return _append(message)
        case "append_reply":
            return _append_reply(fields)
        case name:
            return f"{name} {all_fields(fields)}".rstrip()


def all_fields(fields: dict[str, Any]) -> str:
    """Return the fields of a message as ``name value`` pairs. A field that is true has its name only."""
    return " ".join(name if value is True else f"{name} {_value(value)}" for name, value in fields.items())


def span(message: MessageSent) -> str:
    """Return the op ids of the entries of a message, first and last."""
    if message.first is None:
        return ""
    return f"{message.first}" if message.first == message.last else f"{message.first}..{message.last}"


def _vote_reply(fields: dict[str, Any]) -> str:
    what = "pre-vote" if fields.get("pre") else "vote"
    asked = fields.get("campaign_term", 0)
    if "refusal" not in fields:
        return f"{what} for term {asked} granted"
    return f"{what} for term {asked} refused: {fields['refusal']}, in term {fields.get('term', 0)}"


def _append(message: MessageSent) -> str:
    fields = message.fields
    what = f"append {span(message)}" if message.kind is TraceKind.APPEND else "empty append"
    return f"{what} after {_value(fields.get('prev', 0))} commit {fields.get('commit', 0)} term {fields.get('term', 0)}"


def _append_reply(fields: dict[str, Any]) -> str:
    if "refusal" not in fields:
        return f"match {fields.get('match', 0)} commit {fields.get('commit', 0)} term {fields.get('term', 0)}"
    agree = f", logs may agree at {_value(fields['hint'])}" if "hint" in fields else ""
    return f"append refused: {fields['refusal']} at {fields.get('rejected', 0)}{agree}, in term {fields.get('term', 0)}"


def _value(value: Any) -> str:
    """Return a value as text; a pair of integers is an op id."""
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return f"{value[0]}.{value[1]}"
    return str(value)
