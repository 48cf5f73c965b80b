"""Draws a run as an SVG picture: what was broken, who led, how many operations had an answer, and how late.

The picture has four parts above one time axis. Pure: takes a report and returns text."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import Final

from stelae_chaos.availability import SLOT_US, TimelineSlot, slots
from stelae_chaos.report import ChaosReport

WIDTH, LEFT, RIGHT = 1200, 150, 20
ROW, GAP, CHART = 17, 34, 110
LATENCY_MS = (1.0, 10_000.0)
"""The lowest and the highest latency of the logarithmic axis."""

COLOURS: Final = ("#4878a8", "#d9863d", "#5b9e5f", "#9a6fb0", "#b5655d", "#7f7f7f", "#c9a93c", "#56a9a8")
FAULT, ANSWERED, UNANSWERED, P50, P99 = "#c8553d", "#8fb58f", "#c8553d", "#4878a8", "#d9863d"
STEPS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)


def timeline(report: ChaosReport) -> str:
    """Return the picture of a run as the text of an SVG file."""
    return _Picture(report).text()


class _Picture:
    """The picture while it is drawn, from top to bottom. ``y`` is where the next part begins."""

    def __init__(self, report: ChaosReport) -> None:
        self._report = report
        self._end_us = max(report.end_us, 1)
        self._parts: list[str] = []
        self._y = 48

    def text(self) -> str:
        """Draw all parts and return the file."""
        report = self._report
        self._label(LEFT, 22, f"stelae chaos, seed {report.seed}, {self._end_us / 1e6:.0f} s", size=15)
        self._label(LEFT, 39, self._verdict(), colour=P50 if report.clean else FAULT)
        self._y += GAP
        self._bars()
        found = slots(report.history.all(), self._end_us)
        self._counts(found)
        self._latencies(found)
        self._time_axis()
        head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self._y}"'
        style = 'font-family="Helvetica, Arial, sans-serif" font-size="11"'
        background = f'<rect width="{WIDTH}" height="{self._y}" fill="white"/>'
        return "\n".join([f"{head} {style}>", background, *self._parts, "</svg>", ""])

    def _verdict(self) -> str:
        found = self._report.findings
        return "no findings" if not found else f"{len(found)} findings, the first: {str(found[0])[:120]}"

    def _bars(self) -> None:
        """Draw the faults by kind, then the leaders by tablet."""
        self._title("what was broken")
        for kind in sorted({span.kind for span in self._report.spans}):
            self._row(kind)
            for span in self._report.spans:
                if span.kind == kind:
                    self._bar(span.begun_us, span.ended_us or self._end_us, FAULT, f"{kind}: {span.detail}")
        self._y += GAP
        nodes = sorted({span.leader for span in self._report.leaders})
        colours = {node: COLOURS[number % len(COLOURS)] for number, node in enumerate(nodes)}
        self._title("who led", list(colours.items()))
        for what in sorted({span.what for span in self._report.leaders}, key=lambda what: (what != "masters", what)):
            self._row(what)
            for led in self._report.leaders:
                if led.what == what:
                    self._bar(led.begun_us, led.ended_us, colours[led.leader], f"{what}: {led.leader}")
        self._y += GAP

    def _counts(self, found: Sequence[TimelineSlot]) -> None:
        """Draw the operations with and without an answer, by the time at which they ended."""
        most = max((slot.answered + slot.unanswered for slot in found), default=1) or 1
        per_s = 1e6 / SLOT_US
        legend = [("with an answer", ANSWERED), ("without", UNANSWERED)]
        self._title(f"operations per second (highest: {most * per_s:.0f})", legend)
        bottom = self._y + CHART
        self._frame()
        for number, slot in enumerate(found):
            left = self._x(number * SLOT_US)
            width = self._x((number + 1) * SLOT_US) - left
            tall = slot.answered / most * CHART
            self._rect(left, bottom - tall, width, tall, ANSWERED)
            lost = slot.unanswered / most * CHART
            self._rect(left, bottom - tall - lost, width, lost, UNANSWERED)
        self._y = bottom + GAP

    def _latencies(self, found: Sequence[TimelineSlot]) -> None:
        """Draw the latencies of the operations with an answer on a logarithmic axis."""
        self._title("latency of operations with an answer, ms", [("p50", P50), ("p99", P99)])
        self._frame()
        low, high = (math.log10(value) for value in LATENCY_MS)
        for power in range(int(low), int(high) + 1):
            y = self._y + CHART - (power - low) / (high - low) * CHART
            self._label(LEFT - 6, y + 4, f"{10**power:g}", anchor="end")
            self._line(LEFT, y, WIDTH - RIGHT, y, "#e4e4e4")

        def height(ms: float) -> float:
            within = min(max(ms, LATENCY_MS[0]), LATENCY_MS[1])
            return self._y + CHART - (math.log10(within) - low) / (high - low) * CHART

        self._points([slot.p50_ms for slot in found], height, P50)
        self._points([slot.p99_ms for slot in found], height, P99)
        self._y += CHART

    def _points(self, values: Sequence[float | None], height: Callable[[float], float], colour: str) -> None:
        """Draw a line through values. It is interrupted where there is no value."""
        run: list[str] = []
        for number, value in enumerate([*values, None]):
            if value is not None:
                run.append(f"{self._x(number * SLOT_US + SLOT_US // 2):.1f},{height(value):.1f}")
            elif run:
                ends = 'stroke-linecap="round" stroke-linejoin="round"'
                points = " ".join(run if len(run) > 1 else run * 2)
                self._parts.append(
                    f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6" {ends}/>'
                )
                run = []

    def _time_axis(self) -> None:
        seconds = self._end_us / 1e6
        step = next((step for step in STEPS_S if seconds / step <= 12), STEPS_S[-1])
        self._y += 18
        for at_s in range(0, int(seconds) + 1, step):
            self._label(self._x(at_s * 1_000_000), self._y, f"{at_s} s", anchor="middle")
        self._y += 16

    def _x(self, at_us: int) -> float:
        return LEFT + min(at_us, self._end_us) / self._end_us * (WIDTH - LEFT - RIGHT)

    def _title(self, text: str, legend: Sequence[tuple[str, str]] = ()) -> None:
        """Write the title of the next part and its legend, above it."""
        self._label(LEFT, self._y - 8, text, weight="bold")
        x = LEFT + 8 + 6.6 * len(text)
        for name, colour in legend:
            self._rect(x, self._y - 17, 10, 10, colour)
            self._label(x + 14, self._y - 8, name)
            x += 26 + 6.2 * len(name)

    def _row(self, name: str) -> None:
        """Begin a row of bars."""
        self._label(LEFT - 6, self._y + 12, name, anchor="end")
        self._line(LEFT, self._y + ROW - 1, WIDTH - RIGHT, self._y + ROW - 1, "#eeeeee")
        self._y += ROW

    def _bar(self, begun_us: int, ended_us: int, colour: str, title: str) -> None:
        """Draw a bar in the row that was begun last, unless it lies after the end of the picture."""
        if begun_us >= self._end_us:
            return
        left = self._x(begun_us)
        self._rect(left, self._y - ROW + 2, max(1.5, self._x(ended_us) - left), ROW - 5, colour, title)

    def _frame(self) -> None:
        self._line(LEFT, self._y + CHART, WIDTH - RIGHT, self._y + CHART, "#999999")

    def _rect(self, x: float, y: float, width: float, height: float, colour: str, title: str = "") -> None:
        if height <= 0 or width <= 0:
            return
        shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{colour}"'
        self._parts.append(f"{shape}><title>{escape(title)}</title></rect>" if title else f"{shape}/>")

    def _line(self, x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
        self._parts.append(f'<line {ends} stroke="{colour}"/>')

    def _label(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        size: int = 11,
        weight: str = "normal",
        colour: str = "#222222",
    ) -> None:
        style = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}"'
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>')
