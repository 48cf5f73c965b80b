"""The command ``stelae bench copy``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from stelae.cli.kit.byte_sizes import byte_size
from stelae.cli.kit.output import JsonOption, note
from stelae_bench.ending import exit_code, measured
from stelae_bench.options import ROUNDS_MIN, BenchDirectoryOption, Seed, existing_folder, parts_in

if TYPE_CHECKING:
    from stelae_bench.copy_context import CopyBenchSettings, CopyPart

PARTS_TEXT = "speed,writes,resume,tablets"
SIZE_TEXT, SIZE_BYTES_MIN = "1GiB", 1 << 20
TABLETS, TABLETS_MAX = 1000, 10_000

_Parts = Annotated[str, typer.Option(help="What to measure, separated by commas.")]
_Bytes = Annotated[
    str,
    typer.Option("--bytes", metavar="BYTES", help="Size of the tablet that is copied, such as 64MiB. At least 1MiB."),
]
_Tablets = Annotated[int, typer.Option(min=1, max=TABLETS_MAX, help="Empty tablets that are moved.")]
_Rounds = Annotated[
    int,
    typer.Option(
        min=1, max=1000, help="Rounds of speed and of writes. Fewer than five do not show how far results spread."
    ),
]
_Seconds = Annotated[
    float, typer.Option(min=0.1, max=600.0, help="Seconds of the writes without a copy in each round.")
]


def copy(
    parts: _Parts = PARTS_TEXT,
    size: _Bytes = SIZE_TEXT,
    tablets: _Tablets = TABLETS,
    rounds: _Rounds = ROUNDS_MIN,
    seconds: _Seconds = 5.0,
    seed: Seed = 1,
    directory: BenchDirectoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure copies of tablets to new servers, beside `cp` and sync of the same files.

    One master and three tablet servers run as processes on this machine. Each copy goes to a server that is started
    for it and has nothing. It is measured from the order to add a replica until that replica has its vote. Rounds are
    interleaved. Each result is the median over the rounds, with the minimum and the maximum.

    speed: one tablet from one source; two tablets of half the size at the same time from two sources; `cp` and sync of
    the files of the tablet. With the processor time of both ends. The aim is 60 % of `cp`.

    writes: single-row writes to a table with three replicas, 64 in flight, without and with a copy beside them. The
    copy is made from the server that leads the table. The aim is to keep 70 % of the rate.

    resume: the target, and then the source, is killed in the middle of a copy and started again. Shows how many bytes
    were moved twice.

    tablets: a server with many empty tablets is retired, and the masters move its replicas to a new server. The aim is
    20 tablets a second.

    Aims do not change the exit code. Exit code 0: every copy has the rows of its source, and every acknowledged row
    was found. 1: rows are missing or differ.

    Example: stelae bench copy --parts speed,resume --bytes 64MiB --dir /var/lib/stelae
    """
    from stelae_bench.copy_context import CopyBenchSettings

    size_bytes = byte_size("--bytes", size)
    if size_bytes < SIZE_BYTES_MIN:
        raise typer.BadParameter(f"{size} is too small: at least {SIZE_BYTES_MIN} bytes", param_hint="--bytes")
    settings = CopyBenchSettings(
        size_bytes=size_bytes,
        tablets=tablets,
        rounds=rounds,
        seconds=seconds,
        seed=seed,
        parts=parts_of(parts),
        directory=existing_folder(directory),
    )
    raise typer.Exit(_run(settings, as_json))


def parts_of(text: str) -> frozenset[CopyPart]:
    """Return the parts in a comma-separated list.

    Raises:
        typer.BadParameter: a part is unknown, or occurs twice.
    """
    from stelae_bench.copy_context import CopyPart

    return parts_in(text, CopyPart)


def _run(settings: CopyBenchSettings, as_json: bool) -> int:
    from stelae_bench.copy_run import run
    from stelae_bench.copy_table import lines

    return exit_code(measured(lambda: run(settings, note)), lines, as_json=as_json)
