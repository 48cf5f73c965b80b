"""Options of the commands of ``stelae bench``, and their checks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

ROUNDS_MIN = 5
"""The fewest rounds. Fewer do not show how far results spread."""

Rounds = Annotated[int, typer.Option(min=ROUNDS_MIN, max=1000, help="Number of rounds.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the rows and of the order within each round.")]
BenchDirectoryOption = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Measure the disk of this folder: all data are in a temporary folder in it. "
        "Default: the folder of temporary files.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="Plot the results into this .png or .svg file, and into one of the other format. Needs stelae[bench].",
    ),
]


_Part = TypeVar("_Part", bound=StrEnum)


def parts_in(text: str, known: type[_Part]) -> frozenset[_Part]:
    """Return the parts in a comma-separated list.

    Raises:
        typer.BadParameter: a part is unknown, or occurs twice.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in list(known) or names.count(name) > 1:
            fact = f"{name!r} occurs twice" if name in list(known) else f"{name!r} is not a part"
            raise typer.BadParameter(f"{fact}; known parts: {', '.join(known)}", param_hint="--parts")
    return frozenset(map(known, names))


def existing_folder(directory: Path | None) -> Path | None:
    """Return the folder, if one is given.

    Raises:
        typer.BadParameter: it does not exist.
    """
    if directory is not None and not directory.is_dir():
        raise typer.BadParameter(f"folder {directory} does not exist; create it first", param_hint="--dir")
    return directory
