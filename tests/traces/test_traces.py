"""Every trace still comes out as it was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traces.interpreter import Trace, rewritten, traces


@pytest.mark.parametrize("path", traces(), ids=lambda path: path.stem)
def test_a_trace_comes_out_as_recorded(path: Path) -> None:
    text = path.read_text()
    assert rewritten(text) == text, (
        "if the change is meant: `python -m tests.traces.rewrite`, and review the difference"
    )


def test_a_changed_outcome_is_noticed() -> None:
    changed = traces()[0].read_text().replace("term 1", "term 7")
    assert rewritten(changed) == traces()[0].read_text() != changed


def test_every_command_of_the_language_is_used_by_some_trace() -> None:
    handlers = [name for name in dir(Trace) if name.startswith("do_")]
    commands = {name.removeprefix("do_").replace("_", "-") for name in handlers}
    lines = [line for path in traces() for line in path.read_text().splitlines() if line]
    used = {line.split()[0] for line in lines}
    assert commands <= used
