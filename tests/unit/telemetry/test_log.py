"""Lines of a node's log: JSON with the fields of the message, and no more repeats than were asked for."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from stelae.machine.metrics import NodeMetrics
from stelae.spi.ids import OpId
from stelae.telemetry.log_limit import KINDS_MAX, RepeatLimit
from stelae.telemetry.log_lines import TEXT_BYTES_MAX, JsonLines, TextLines
from stelae.telemetry.settings import LoggingSettings


def record(message: str, *arguments: object, level: int = logging.INFO, line: int = 1) -> logging.LogRecord:
    return logging.LogRecord("stelae.host.replica", level, "replica.py", line, message, arguments, None)


def told(message: str, *arguments: object) -> dict[str, Any]:
    form = JsonLines()
    form.node_id = "n1"
    text = form.format(record(message, *arguments))
    assert "\n" not in text
    found = json.loads(text)
    assert found.pop("time").endswith("+00:00")
    assert (found.pop("level"), found.pop("logger"), found.pop("node")) == ("info", "stelae.host.replica", "n1")
    return dict(found)


@pytest.mark.parametrize(
    ("message", "arguments", "fields"),
    [
        ("the disk is back", (), {"event": "the disk is back"}),
        (
            "replica starts tablet=%s term=%d last=%s",
            ("t1", 4, OpId(4, 9)),
            {"event": "replica starts", "tablet": "t1", "term": 4, "last": str(OpId(4, 9))},
        ),
        (
            "replica tablet=%s role=%s->%s term=%s->%s",
            ("t1", "FOLLOWER", "LEADER", 4, 5),
            {
                "event": "replica",
                "tablet": "t1",
                "role_before": "FOLLOWER",
                "role": "LEADER",
                "term_before": 4,
                "term": 5,
            },
        ),
        (
            "replica failed tablet=%s reason=%s",
            ("t1", "a disk = broken: term=7"),
            {"event": "replica failed", "tablet": "t1", "fact": "a disk = broken: term=7"},
        ),
        (
            "action not taken action=%s tablet=%s server=%s: %s",
            ("Create", "t1", "s", "it is away"),
            {"event": "action not taken", "action": "Create", "tablet": "t1", "server": "s", "fact": "it is away"},
        ),
        ("tablet not %s tablet=%s", ("created", "t1"), {"event": "tablet not created", "tablet": "t1"}),
        ("an observer raised: %s", ("boom",), {"event": "an observer raised", "fact": "boom"}),
        ("memory is short, flushing tablet=%s", ("t1",), {"event": "memory is short, flushing", "tablet": "t1"}),
        ("  %s", ("a line of history",), {"event": "a line of history"}),
        ("late by=%.1f ms", (2.25,), {"event": "late", "by": 2.25, "fact": "ms"}),
        ("who tablet=%s leader=%s", ("t1", None), {"event": "who", "tablet": "t1", "leader": None}),
    ],
)
def test_event_fields_and_fact_are_read_off_the_message(
    message: str, arguments: tuple[object, ...], fields: dict[str, Any]
) -> None:
    assert told(message, *arguments) == fields


def test_a_field_that_is_named_like_one_of_ours_does_not_take_its_place() -> None:
    assert told("odd time=%s level=%s node=%s", 1, 2, 3) == {"event": "odd"}


@pytest.mark.parametrize("message", ["%d wrong", "too few %s %s", "%s tablet=%s"])
def test_a_message_that_does_not_fit_its_arguments_is_shown_as_it_is(message: str) -> None:
    found = told(message, "x")
    assert found["event"] == message and "x" in found["fact"]


def test_whatever_text_comes_it_is_one_line_and_bounded() -> None:
    found = told("replica failed tablet=%s reason=%s", "\ud800\n\x00", "x" * 100_000)
    assert found["tablet"] == "?\n\x00"
    assert len(found["fact"]) <= TEXT_BYTES_MAX + 3


def test_an_error_brings_its_trace() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        one = logging.LogRecord("x", logging.ERROR, "x.py", 1, "handler failed kind=%s", ("write",), sys.exc_info())
    found = json.loads(JsonLines().format(one))
    assert found["kind"] == "write" and "ValueError: boom" in found["trace"]


def test_a_trace_with_a_file_name_that_is_not_utf_8_is_written() -> None:
    """JSON cannot hold such text. The whole line was lost."""
    try:
        raise FileNotFoundError(2, "No such file or directory", "/data/\udcff")
    except FileNotFoundError:
        one = logging.LogRecord("x", logging.ERROR, "x.py", 1, "handler failed kind=%s", ("write",), sys.exc_info())
    found = json.loads(JsonLines().format(one))
    assert found["kind"] == "write" and "No such file or directory: '/data/\\udcff'" in found["trace"]
    try:
        raise ValueError("a name: \udcff")
    except ValueError:
        one = logging.LogRecord("x", logging.ERROR, "x.py", 1, "handler failed", (), sys.exc_info())
    assert "ValueError: a name: ?" in json.loads(JsonLines().format(one))["trace"]


class _Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("message", "arguments"),
    [("replica tablet=%s", (_Unshowable(),)), ("replica: %s", (_Unshowable(),)), (_Unshowable(), ())],
)
def test_a_value_without_a_text_does_not_cost_the_line(message: Any, arguments: tuple[object, ...]) -> None:
    found = told(message, *arguments)
    assert found["event"] and "_Unshowable" in str(found)


def test_text_for_people_is_the_message_as_it_was_written() -> None:
    one = record("replica starts tablet=%s term=%d", "t1", 4)
    one.suppressed = 12
    text = TextLines().format(one)
    assert text.endswith(" INFO stelae.host.replica replica starts tablet=t1 term=4 (12 similar lines left out)")


class Limit:
    """A limit whose clock a test moves."""

    def __init__(self, **settings: int) -> None:
        self.now_s = 0.0
        self.metrics = NodeMetrics()
        self.filter = RepeatLimit(LoggingSettings(**settings), self.metrics, lambda: self.now_s)

    def written(self, *records: logging.LogRecord) -> list[logging.LogRecord]:
        return [one for one in records if self.filter.filter(one)]


def test_equal_lines_are_written_so_often_in_a_window_and_then_their_number() -> None:
    limit = Limit(window_s=10, repeats_max=2)
    assert len(limit.written(*(record("disk full tablet=%s", "t1") for _ in range(7)))) == 2
    limit.now_s = 10
    (again,) = limit.written(record("disk full tablet=%s", "t1"))
    assert again.suppressed == 5
    assert limit.metrics.counts() == {"logging_lines_info": 3, "logging_lines_suppressed": 5}


def test_lines_that_differ_do_not_count_against_each_other() -> None:
    limit = Limit(repeats_max=1)
    lines = [record("replica starts tablet=%s", f"t{n}") for n in range(900)]
    assert limit.written(*lines) == lines


def test_a_place_that_floods_is_cut_short_however_its_lines_differ() -> None:
    limit = Limit(lines_max=50, window_s=10)
    assert len(limit.written(*(record("late %s", n) for n in range(1000)))) == 50
    assert len(limit.written(record("late %s", 5000, line=2))) == 1, "another place is not concerned"
    limit.now_s = 10
    (again,) = limit.written(record("late %s", 6000))
    assert again.suppressed == 950


def test_what_is_remembered_is_bounded() -> None:
    limit = Limit(lines_max=10_000_000)
    limit.written(*(record("late %s", n) for n in range(2 * KINDS_MAX)))
    assert len(limit.filter._windows) == KINDS_MAX


def test_a_message_that_cannot_be_formatted_passes_the_limit() -> None:
    assert len(Limit().written(record("%d", "x"))) == 1
