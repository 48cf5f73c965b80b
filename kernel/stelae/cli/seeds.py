"""Options of simulations: seeds and faults; and a pool of processes that runs the seeds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from stelae.spi.errors import CallerError

SEEDS_MAX = 1_000_000

Result = TypeVar("Result")

PROGRESS_EVERY = 25
"""Number of seeds between two lines of progress."""


def chosen_seeds(seed: int | None, seeds: str | None) -> range:
    """Return the seeds of the options ``--seed`` or ``--seeds``.

    Raises:
        CallerError: neither or both options are given, or the range is malformed or too large.
    """
    if (seed is None) == (seeds is None):
        raise CallerError("pass either --seed N or --seeds A..B")
    if seeds is None:
        assert seed is not None
        return range(seed, seed + 1)
    low, dots, high = seeds.partition("..")
    if not (dots and low.isdecimal() and high.isdecimal()) or int(low) > int(high):
        raise CallerError(f"--seeds takes a range such as 1..50, both included, not {seeds!r}")
    if int(high) - int(low) >= SEEDS_MAX:
        raise CallerError(f"--seeds {seeds} has too many seeds; the limit is {SEEDS_MAX}")
    return range(int(low), int(high) + 1)


def faults_to_keep(faults: str | None) -> frozenset[int] | None:
    """Return the numbers of the faults to keep. ``None``: all.

    Raises:
        CallerError: the text is not a list of numbers.
    """
    if faults is None:
        return None
    if faults == "none":
        return frozenset()
    numbers = faults.split(",")
    if not all(number.isdecimal() for number in numbers):
        raise CallerError(f"--faults takes numbers from `stelae sim plan`, such as 0,3,4, or none; not {faults!r}")
    return frozenset(int(number) for number in numbers)


def over_processes(work: Callable[[int], Result], seeds: range, jobs: int) -> Iterator[Result]:
    """Yield the result of every seed, in the order of the seeds. ``jobs`` 0: one process for each core."""
    processes = min(jobs or os.cpu_count() or 1, len(seeds))
    if processes == 1:
        yield from map(work, seeds)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_end_with_parent) as pool:
        yield from pool.map(work, seeds, chunksize=max(1, min(8, len(seeds) // processes)))


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended, also if that was killed: nothing would take its results."""
    import multiprocessing
    from threading import Thread

    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, name="parent", daemon=True).start()
