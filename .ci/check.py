"""Run groups of checks in two lanes, then print how long each group took.

    python .ci/check.py GROUP... [-- arguments for the command of a single group]
    python .ci/check.py --soak

Tests with real processes mostly wait, so they run beside the groups that compute. Within a lane, groups run one after
the other. The output of a group is printed when the group ends, so that outputs never mix; a single group prints while
it runs. Every group runs even after another has failed, so one run shows everything that is wrong. The exit code is 0
only if every group passed.

`make check` runs what one change needs. `make soak` runs the long groups: many more seeds, every planted bug on many
seeds, property tests with many more examples, and tests of real processes under load. Run it before an issue counts as
resolved. A run of `make check` ends by naming what it leaves to `make soak`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
BUDGET_S = 15 * 60
"""What all groups together may take on two cores; more is reported, and is a reason to act."""

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one group went."""

    group: str
    ok: bool
    seconds: float


def pytest(*arguments: str) -> Command:
    """A run of pytest by the interpreter that runs this script."""
    return (sys.executable, "-m", "pytest", "-q", "--durations=5", *arguments)


def soak(command: Command) -> Command:
    """A command whose tests look further: tests/conftest.py and tests/sim/test_mutants.py read the variable."""
    return ("env", "STELAE_SOAK=1", *command)


def tool(name: str, *arguments: str) -> Command:
    """A command that is installed beside this interpreter."""
    return (str(BIN / name), *arguments)


SEEDS_COUNT = 40
"""Seeds that `sim` runs. The seeds 1 to 100 are run by `mutants`, too, where more is asked of them."""

SEEDS_SOAK = "101..1100"


def seeds_of_this_change() -> str:
    """The seeds of `sim`, drawn from the commit: each change runs others, and the same commit always the same."""
    try:
        asked = subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, check=True, capture_output=True, text=True)
        commit = asked.stdout[:7]
    except (OSError, subprocess.CalledProcessError):
        commit = "0"  # A copy of the files without their history.
    first = 1_000 + int(commit, 16)
    return f"{first}..{first + SEEDS_COUNT - 1}"


GROUPS: dict[str, Command] = {
    "tidy": pytest("tests/tidy"),
    "unit": pytest("-n", "2", "tests/unit"),
    "traces": pytest("tests/traces"),
    "conformance": pytest("-n", "2", "tests/conformance"),
    "sim": tool("stelae", "sim", "run", "--seeds", seeds_of_this_change()),
    "mutants": pytest("-n", "2", "--dist", "loadgroup", "tests/sim"),
    "e2e": pytest("-n", "2", "--dist", "loadfile", "tests/e2e"),
    "lint": tool("ruff", "check", "."),
    "format": tool("ruff", "format", "--check", "."),
    "types": tool("mypy"),
    "docs": tool("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html"),
}


WAITING = frozenset({"e2e"})
"""Groups of the lane that mostly waits. Every other group computes."""


SOAK: dict[str, Command] = {
    "soak-sim": tool("stelae", "sim", "run", "--seeds", SEEDS_SOAK),
    "soak-masters": tool("stelae", "sim", "masters", "--seeds", SEEDS_SOAK),
    "soak-mutants": soak(pytest("-n", "2", "--dist", "loadgroup", "tests/sim")),
    "soak-fuzz": soak(pytest("-n", "2", "-m", "hypothesis", "tests/unit", "tests/conformance")),
    "soak-e2e": pytest("-n", "6", "--dist", "loadfile", "tests/e2e"),
    **{
        f"soak-demo-{wal}-{store}": tool("stelae", "demo", "--wal", wal, "--store", store)
        for wal, store in (("segmented", "columnar"), ("shared", "lmdb"), ("lmdb", "memory"))
    },
}
"""The groups of `make soak`, one after the other: they are meant to load the machine by themselves."""


def run_group(group: str, extra: Command, *, at_once: bool) -> Result:
    """Run one group and time it. ``extra`` is appended to its command; ``at_once``: print its output while it runs."""
    command = (GROUPS | SOAK)[group] + extra
    title = f"\n== {group}: {Path(command[0]).name} {' '.join(command[1:])}"
    started = time.monotonic()
    if at_once:
        print(title, flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
    else:
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        code = done.returncode
        print(f"{title}\n{done.stdout.decode(errors='replace')}", end="", flush=True)
    return Result(group=group, ok=code == 0, seconds=time.monotonic() - started)


def run_lanes(groups: Sequence[str]) -> list[Result]:
    """Run groups in two lanes; the results are in the order of ``groups``."""
    lanes = [[group for group in groups if group in WAITING], [group for group in groups if group not in WAITING]]

    def run_lane(lane: list[str]) -> list[Result]:
        return [run_group(group, (), at_once=False) for group in lane]

    with ThreadPoolExecutor(len(lanes)) as pool:
        results = {result.group: result for lane in pool.map(run_lane, lanes) for result in lane}
    return [results[group] for group in groups]


def report(results: list[Result], total_s: float, budget_s: float | None) -> None:
    """Print the table that ends every run."""
    width = max(14, *(len(result.group) for result in results))
    print(f"\n{'group':<{width}} seconds")
    for result in results:
        print(f"{result.group:<{width}} {result.seconds:7.1f}  {'ok' if result.ok else 'FAILED'}")
    print(f"{'total':<{width}} {total_s:7.1f}" + (f"  of {budget_s} budgeted" if budget_s else ""), flush=True)


def main(arguments: list[str]) -> int:
    """Run the groups named on the command line, or the long ones."""
    if arguments == ["--soak"]:
        started = time.monotonic()
        results = [run_group(group, (), at_once=True) for group in SOAK]
        report(results, time.monotonic() - started, None)
        return 0 if all(result.ok for result in results) else 1
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    groups, extra = arguments[:cut], tuple(arguments[cut + 1 :])
    unknown = [group for group in groups if group not in GROUPS]
    if unknown or not groups:
        print(f"unknown groups: {unknown}; there are: {' '.join(GROUPS)}", file=sys.stderr)
        return 2
    if extra and len(groups) > 1:
        print("arguments can be passed on to a single group only", file=sys.stderr)
        return 2
    started = time.monotonic()
    results = [run_group(groups[0], extra, at_once=True)] if len(groups) == 1 else run_lanes(groups)
    report(results, time.monotonic() - started, BUDGET_S)
    if set(groups) == set(GROUPS):
        print(f"left to make soak: {', '.join(SOAK)}", flush=True)
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
