"""Renders the view model of a trace as one HTML page, which needs no network and no other file.

The summary is HTML. The trace itself is JSON in the page, which the script of the page draws. All text of a run is
escaped: as HTML in the summary, and as JSON in which no markup can begin."""

from __future__ import annotations

from html import escape
from importlib import resources
from typing import Final

import msgspec

from stelae.sim.trace.page import TracePage

_FILES: Final = "page_files"


def page_html(page: TracePage) -> str:
    """Return the page as HTML."""
    parts = {
        "style": _file("page.css"),
        "script": _file("page.js"),
        "title": escape(f"seed {page.seed}, {page.profile}"),
        "summary": _summary(page),
        "trace": embedded_json(page),
    }
    # One pass over the template: a marker inside a part is text.
    pieces = _file("page.html").split("@@")
    return "".join(parts[piece] if number % 2 else piece for number, piece in enumerate(pieces))


def embedded_json(page: TracePage) -> str:
    """Return a page as JSON for a ``script`` element. No markup can begin or end in it."""
    text = msgspec.json.encode(page).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _summary(page: TracePage) -> str:
    kept = sum(page.kinds.values())
    left_out = ", ".join(f"{count} {kind}" for kind, count in page.left_out.items())
    records = f"{kept} in this page" + (f"; left out: {left_out}" if left_out else "; none left out")
    rows = {
        "Verdict": _verdict(page),
        "Repeat with": f"<code>{escape(page.command)}</code>",
        "Time": escape(f"{page.from_us / 1e6:.6f} s to {page.to_us / 1e6:.6f} s"),
        "Records": escape(records),
        "Faults": _faults(page),
    }
    return "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows.items())


def _verdict(page: TracePage) -> str:
    if page.violation_us is None:
        return f'<span class="good">{escape(page.verdict)}</span>'
    text = f"{page.violation_us / 1e6:.6f} s: {page.verdict}"
    return f'<a class="bad" href="#{page.violation_us}" data-at="{page.violation_us}">{escape(text)}</a>'


def _faults(page: TracePage) -> str:
    if not page.faults:
        return "none"
    items = "".join(
        f'<li><a href="#{span.from_us}" data-at="{span.from_us}">{span.from_us / 1e6:.6f} s</a> {escape(span.text)}'
        f"{'' if span.node is None else f' (node {span.node})'}</li>"
        for span in page.faults
    )
    return f"<details><summary>{len(page.faults)}</summary><ol>{items}</ol></details>"


def _file(name: str) -> str:
    return (resources.files(__package__) / _FILES / name).read_text(encoding="utf-8")
