"""What the commands of ``stelae bench`` share: options and checks of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

ROUNDS_MIN = 5
"""Fewer rounds say nothing about how far they spread."""

Rounds = Annotated[int, typer.Option(min=ROUNDS_MIN, max=1000, help="Rounds.")]
Seed = Annotated[int, typer.Option(min=0, help="Draws the rows and the order within each round.")]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Measure the disk that holds this folder: all data go into a temporary "
        "folder in it. By default where temporary files go.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="Draw the figures into this .png or .svg file, and into the other beside it; needs stelae[bench].",
    ),
]


@contextmanager
def ended_alike() -> Iterator[None]:
    """Let SIGTERM end what is measured as Ctrl-C does: processes are stopped, files go."""

    def end(*_: object) -> None:
        # As a shell may have started it, SIGINT does nothing.
        if signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL):
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def existing(directory: Path | None) -> Path | None:
    if directory is not None and not directory.is_dir():
        raise typer.BadParameter(f"{directory} is no folder; make it first", param_hint="--dir")
    return directory
