"""How the commands of ``stelae bench`` begin and end.

They warn of a slow interpreter, stop every process after an interrupt, and print a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import typer

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.sigterm import sigterm_as_interrupt
from stelae_bench.interpreter import warning

_Measured = TypeVar("_Measured")


class Report(Protocol):
    """What a run has measured."""

    problems: list[str]

    @property
    def ok(self) -> bool:
        """Whether everything that was asked for was measured, and can be trusted."""
        ...

    def document(self) -> dict[str, Any]:
        """Return the ``--json`` document."""
        ...


def measured(run: Callable[[], _Measured]) -> _Measured:
    """Run a benchmark and return its report. Before it, warn of an interpreter that was built without optimisation.

    Raises:
        typer.Exit: it was interrupted; the run has stopped its processes.
    """
    slow_interpreter = warning()
    if slow_interpreter is not None:
        note(slow_interpreter)
    try:
        with sigterm_as_interrupt():
            return run()
    except KeyboardInterrupt:
        note("interrupted; every process was stopped")
        raise typer.Exit(EXIT_INTERRUPTED) from None


def exit_code(
    report: Report,
    lines: Callable[[Mapping[str, Any]], Sequence[str]],
    *,
    as_json: bool,
    draw: Callable[[dict[str, Any]], object] | None = None,
) -> int:
    """Print a report, draw its plot if there is one, and return the exit code of the command."""
    document = report.document()
    if as_json:
        print_json(document)
    else:
        print("\n".join(lines(document)))
    for problem in report.problems:
        note(f"problem: {problem}")
    if draw is not None:
        draw(document)  # May fail. Then everything else has been said.
    return EXIT_OK if report.ok else EXIT_FAILED
