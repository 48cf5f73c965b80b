"""How a line of a node's log is written: for people, or as one JSON object for machines.

Modules log an event with its fields: ``log.info("replica failed tablet=%s reason=%s", tablet, reason)``. Names and
values are read off the template, not off the text, so that a value may hold anything. What stands before the first
field is the event; what follows the last one, or else the field ``reason``, is the fact. ``term=%s->%s`` gives
``term_before`` and ``term``."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

TEXT_BYTES_MAX = 8192
"""Longest text of a field: a line stays one that log shippers take."""

_PLACE = r"%[-0-9.]*[sdrfg]"
_FIELD = re.compile(rf"\b(\w+)=({_PLACE})(->{_PLACE})?")
_ANY_PLACE = re.compile(_PLACE)


@dataclass(frozen=True, slots=True)
class Template:
    """What a message says besides its values.

    Attributes:
        event: the words before the first field.
        names: of the fields, by the number of their argument; arguments without a name are not in it.
        fact: what follows the last field, with its places, and the first argument that it takes.
    """

    event: str
    names: tuple[tuple[int, str], ...]
    fact: str
    fact_from: int


@lru_cache(maxsize=1024)
def template_of(text: str) -> Template:
    """Take a template apart; one without fields is all event."""
    fields = list(_FIELD.finditer(text))
    if not fields:
        head, colon, fact = text.partition(": ")
        if not colon or _ANY_PLACE.search(head):
            return Template(text, (), "", 0)
        return Template(head, (), fact, 0)
    names: list[tuple[int, str]] = []
    for field in fields:
        place = len(_ANY_PLACE.findall(text[: field.start()]))
        pair = (f"{field[1]}_before", field[1]) if field[3] else (field[1],)
        names += [(place + number, name) for number, name in enumerate(pair)]
    end = fields[-1].end()
    event = text[: fields[0].start()].strip(" ,:")
    return Template(event, tuple(names), text[end:].strip(" ,:"), len(_ANY_PLACE.findall(text[:end])))


class JsonLines(logging.Formatter):
    """One JSON object on each line: ``time``, ``level``, ``logger``, ``node``, ``event``, its fields, ``fact`` and,
    of an error that nobody foresaw, ``trace``.

    ``tablet`` and ``term`` are fields like others: there if the message has them. ``node_id`` is set once known."""

    def __init__(self) -> None:
        super().__init__()
        self.node_id = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Never raises: a message that cannot be formatted is shown as it is."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "node": self.node_id,
        }
        for name, value in _told(record).items():
            line[name] = line.get(name) or value  # A field that is named like one of ours does not take its place.
        if record.exc_info and record.exc_info[0] is not None:
            line["trace"] = self.formatException(record.exc_info)
        suppressed = getattr(record, "suppressed", 0)
        if suppressed:
            line["suppressed"] = suppressed
        return orjson.dumps(line, default=_shown).decode()


class TextLines(logging.Formatter):
    """For people: time, level, logger, and the message as it was written."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self.node_id = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, and how many like it were left out before."""
        suppressed = getattr(record, "suppressed", 0)
        text = super().format(record)
        return f"{text} ({suppressed} like this left out)" if suppressed else text


def _told(record: logging.LogRecord) -> dict[str, Any]:
    """Event, fields and fact of a record."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    template = template_of(str(record.msg))
    try:
        if not arguments:
            event, _, fact = record.getMessage().partition(": ")
            return {"event": _cut(event)} | ({"fact": _cut(fact)} if fact else {})
        if not template.names and not template.fact:
            return {"event": _cut(record.getMessage().strip())}
        event = template.event % arguments[: len(_ANY_PLACE.findall(template.event))]
        told: dict[str, Any] = {"event": _cut(event) or record.module}
        told |= {name: _plain(arguments[place]) for place, name in template.names}
        fact = template.fact % arguments[template.fact_from :] if template.fact else ""
        fact = fact or str(told.pop("reason", ""))
        return told | ({"fact": _cut(fact)} if fact else {})
    except Exception:
        return {"event": _cut(str(record.msg)), "fact": _cut(repr(record.args))}


def _plain(value: object) -> object:
    """A number or a switch as it is; anything else as its text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return _cut(str(value))


def _shown(value: object) -> str:
    return _cut(str(value))


def _cut(text: str) -> str:
    """Text that JSON can hold, and not too long."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= TEXT_BYTES_MAX else f"{text[:TEXT_BYTES_MAX]}..."
