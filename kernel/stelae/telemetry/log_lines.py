"""Formats a line of a node's log: as text for people, or as one JSON object for machines.

Modules log an event with its fields: ``log.info("replica failed tablet=%s reason=%s", tablet, reason)``. Names and
values are taken from the template and the arguments, not from the formatted text, so a value may contain anything. The
text before the first field is the event. The text after the last field, or else the field ``reason``, is the fact.
``term=%s->%s`` gives ``term_before`` and ``term``."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson

TEXT_BYTES_MAX = 8192
"""The longest text of a field in characters, so that log shippers accept the line."""

_PLACEHOLDER = r"%[-0-9.]*[sdrfg]"
_FIELD = re.compile(rf"\b(\w+)=({_PLACEHOLDER})(->{_PLACEHOLDER})?")
_ANY_PLACEHOLDER = re.compile(_PLACEHOLDER)


@dataclass(frozen=True, slots=True)
class Template:
    """A message without its values.

    Attributes:
        event: the text before the first field.
        names: argument number and name of each field. Arguments without a name are not in it.
        fact: the text after the last field, with its placeholders.
        fact_from: the number of the first argument of ``fact``.
    """

    event: str
    names: tuple[tuple[int, str], ...]
    fact: str
    fact_from: int


@lru_cache(maxsize=1024)
def template_of(text: str) -> Template:
    """Split a template into its parts. A template without fields has only an event and perhaps a fact."""
    fields = list(_FIELD.finditer(text))
    if not fields:
        head, colon, fact = text.partition(": ")
        if not colon or _ANY_PLACEHOLDER.search(head):
            return Template(text, (), "", 0)
        return Template(head, (), fact, 0)
    names: list[tuple[int, str]] = []
    for field in fields:
        first = len(_ANY_PLACEHOLDER.findall(text[: field.start()]))
        pair = (f"{field[1]}_before", field[1]) if field[3] else (field[1],)
        names += [(first + number, name) for number, name in enumerate(pair)]
    end = fields[-1].end()
    event = text[: fields[0].start()].strip(" ,:")
    return Template(event, tuple(names), text[end:].strip(" ,:"), len(_ANY_PLACEHOLDER.findall(text[:end])))


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: ``time``, ``level``, ``logger``, ``node``, ``event``, the fields, ``fact``,
    and ``trace`` for an unexpected error.

    ``tablet`` and ``term`` are present if the message has such fields. ``node_id`` is set once it is known."""

    def __init__(self) -> None:
        super().__init__()
        self.node_id = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. Never raises: a message that cannot be formatted appears with its raw arguments."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "node": self.node_id,
        }
        for name, value in _parts_of(record).items():
            line[name] = line.get(name) or value  # A field of the message does not replace one of the four above.
        if record.exc_info and record.exc_info[0] is not None:
            line["trace"] = _valid(self.formatException(record.exc_info))
        suppressed = getattr(record, "suppressed", 0)
        if suppressed:
            line["suppressed"] = suppressed
        return orjson.dumps(line, default=_shown).decode()


class TextLines(logging.Formatter):
    """Formats a record as text: time, level, logger, and the message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self.node_id = ""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, with the number of similar lines that were left out before it."""
        suppressed = getattr(record, "suppressed", 0)
        text = super().format(record)
        return f"{text} ({suppressed} similar lines left out)" if suppressed else text


def _parts_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return event, fields and fact of a record."""
    arguments = record.args if isinstance(record.args, tuple) else ()
    try:
        template = template_of(str(record.msg))
        if not arguments:
            event, _, fact = record.getMessage().partition(": ")
            return {"event": _cut(event)} | ({"fact": _cut(fact)} if fact else {})
        if not template.names and not template.fact:
            return {"event": _cut(record.getMessage().strip())}
        event = template.event % arguments[: len(_ANY_PLACEHOLDER.findall(template.event))]
        found: dict[str, Any] = {"event": _cut(event) or record.module}
        found |= {name: _plain(arguments[number]) for number, name in template.names}
        fact = template.fact % arguments[template.fact_from :] if template.fact else ""
        fact = fact or str(found.pop("reason", ""))
        return found | ({"fact": _cut(fact)} if fact else {})
    except Exception:
        return {"event": _cut(_text(str, record.msg)), "fact": _cut(_text(repr, record.args))}


def _text(form: Callable[[object], str], value: object) -> str:
    """Return the text of a value, or else of its type: its own method may be what has raised."""
    try:
        return form(value)
    except Exception as error:
        types = [type(part).__name__ for part in (value if isinstance(value, tuple) else (value,))]
        return f"{', '.join(types)} without a text: {type(error).__name__}"


def _plain(value: object) -> object:
    """Return a number, boolean or ``None`` unchanged, and the text of anything else."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    return _cut(str(value))


def _shown(value: object) -> str:
    return _cut(str(value))


def _valid(text: str) -> str:
    """Return the text as valid Unicode: a file name may have bytes that are not UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _cut(text: str) -> str:
    """Return the text as valid Unicode, cut to ``TEXT_BYTES_MAX`` characters."""
    text = _valid(text)
    return text if len(text) <= TEXT_BYTES_MAX else f"{text[:TEXT_BYTES_MAX]}..."
