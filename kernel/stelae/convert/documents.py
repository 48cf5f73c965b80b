"""Entries and logs as plain values, for people and for JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stelae.convert.log_check import LogReport
from stelae.spi.errors import StelaeError
from stelae.spi.log import Entry, EntryKind
from stelae.spi.members import decode_config
from stelae.spi.payload import decode_payload
from stelae.spi.schema import Schema
from stelae.spi.wal import LogState


def entry_document(log: str, entry: Entry, *, bodies: bool) -> dict[str, Any]:
    """Return an entry of the log with that name; with ``bodies`` also its body, in hexadecimal."""
    found: dict[str, Any] = {
        "log": log,
        "op_id": str(entry.op_id),
        "kind": entry.kind.name,
        "timestamp": entry.timestamp,
        "size_bytes": len(entry.body),
        "summary": summary(entry),
    }
    if bodies:
        found["body"] = entry.body.hex()
    return found


def summary(entry: Entry) -> str:
    """Return one line about the body of an entry. A body that cannot be decoded gives a line too, and no error."""
    try:
        match entry.kind:
            case EntryKind.WRITE:
                return _write(entry)
            case EntryKind.CONFIG:
                members = Counter(member.member_type.name for member in decode_config(entry).members)
                return ", ".join(f"{count} {name}" for name, count in sorted(members.items()))
            case EntryKind.SCHEMA:
                schema = Schema.from_bytes(entry.body)
                return f"schema {schema.version}, {len(schema.columns)} columns"
            case EntryKind.NOOP:
                return ""
    except StelaeError as error:
        return f"UNREADABLE: {error}"


def _write(entry: Entry) -> str:
    payload = decode_payload(entry.body)
    rows: Counter[str] = Counter()
    for group in payload.groups:
        rows[group.kind.name] += group.row_count
    kinds = ", ".join(f"{count} {name}" for name, count in rows.items()) or "no rows"
    asked = f"{sum(len(run.digests) for run in payload.sequences)} operations of {len(payload.clients)} clients"
    return f"{kinds}; {asked}; schema {payload.schema_version}"


def state_document(state: LogState) -> dict[str, Any]:
    """Return what an engine says about a log."""
    return {"base": str(state.base), "last": str(state.last), "commit_hint": state.commit_hint}


def report_document(report: LogReport) -> dict[str, Any]:
    """Return the result of reading a log; ``problem`` is ``None`` for a good log."""
    found: dict[str, Any] = {"log": str(report.log), **state_document(report.state)}
    found |= {"entries": report.entries, "body_bytes": report.body_bytes, "problem": None}
    if (bad := report.problem) is not None:
        place = {"path": bad.path, "offset": bad.offset, "last_good": str(bad.last_good)}
        found["problem"] = {**place, "detail": bad.detail, "damage": bad.damage}
    return found
