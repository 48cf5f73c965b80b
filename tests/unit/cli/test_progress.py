"""Progress goes to standard error, and only where somebody reads it or asked for it."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any

import pytest

from stelae.cli.kit import progress
from stelae.cli.kit.progress import RowsProgress


class Terminal(StringIO):
    """Standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, to be moved by hand."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def worked(clock: list[float], wanted: bool | None, done: bool = True) -> None:
    with RowsProgress("import", wanted) as shown:
        for step in range(1, 7):
            clock[0] += 0.5
            shown.update(step * 1000, step / 10 if done else None)


def test_without_a_terminal_nothing_is_shown_unless_it_is_asked_for(clock: list[float], capsys: Any) -> None:
    worked(clock, None)
    assert capsys.readouterr() == ("", "")
    worked(clock, True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "import: 2,000 rows, 20%, 2,000 rows/s, about 4 s left",
        "import: 4,000 rows, 40%, 2,000 rows/s, about 3 s left",
        "import: 6,000 rows, 60%, 2,000 rows/s, about 2 s left",
    ]


def test_on_a_terminal_one_line_moves_and_is_gone_at_the_end(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    worked(clock, None)
    lines = sys.stderr.getvalue().split("\r")  # type: ignore[attr-defined]
    assert len(lines) > 6 and "\n" not in "".join(lines)
    assert lines[-2].strip() == "" and len(lines[-2]) >= len(lines[-3].rstrip())
    assert capsys.readouterr().out == ""


def test_on_a_terminal_it_can_be_refused(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    worked(clock, False)
    assert sys.stderr.getvalue() == ""  # type: ignore[attr-defined]


def test_work_whose_end_nobody_knows_has_a_rate_and_no_end(clock: list[float], capsys: Any) -> None:
    worked(clock, True, done=False)
    assert capsys.readouterr().err.splitlines()[0] == "import: 2,000 rows, 2,000 rows/s"
