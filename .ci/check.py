"""Run groups of checks, then print how long each took.

    python .ci/check.py --check
    python .ci/check.py GROUP... [-- arguments for the command of a single group]
    python .ci/check.py --soak

Groups of real processes mostly wait, so the groups that need one process run beside them, one after the other. Then
come those that use both cores. The output of a group is printed when the group ends, so that outputs never mix; a
single group prints while it runs. Every group runs even after another has failed, so one run shows everything that is
wrong, and its last lines name it. The exit code is 0 only if every group passed.

`make check` runs what one change needs: of the tests that take long it draws a share from the commit. `make soak` runs
all of these, and the long groups: many more seeds, every planted bug on many seeds, fuzzers and property tests at
length, long chaos, and tests of real processes under load. It draws its seeds from the commit, too. Run it before an
issue counts as resolved. It takes hours, so it may be interrupted: a group that has passed is not repeated on the same
commit, as long as no file has changed. A run of `make check` prints what it runs and what it leaves to
`make soak`."""

from __future__ import annotations

import os
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
"""What all groups together may take on two cores that do nothing else; more is reported, and is a reason to act."""

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one group went; ``cpu_s``: processor time of its processes, which other work on the machine leaves alone."""

    group: str
    ok: bool
    seconds: float
    cpu_s: float
    output: str
    """What the group printed; empty if it was printed at once."""


def pytest(*arguments: str) -> Command:
    """A run of pytest by the interpreter that runs this script."""
    return (sys.executable, "-m", "pytest", "-q", "--durations=5", *arguments)


LONG_TESTS = ("-o", "faulthandler_timeout=7200")
"""For groups with tests of hours. Otherwise one that takes 20 minutes ends its group, with the stack where it was."""


def at_length(command: Command) -> Command:
    """A command of pytest whose tests look further: tests/at_length.py reads the variable."""
    return ("env", "STELAE_SOAK=1", *command, *LONG_TESTS)


def tool(name: str, *arguments: str) -> Command:
    """A command that is installed beside this interpreter."""
    return (str(BIN / name), *arguments)


LAST_LINES_COUNT = 20
"""Lines that are repeated of a group that failed and is no run of pytest."""

SEEDS_COUNTS = {"sim": 18, "members": 6, "leases": 3, "lookups": 3, "copies": 2, "masters": 8}
"""The groups that run seeds of the simulator, and how many each runs for a change."""

RUNS = {
    "sim": ("run",),
    "members": ("run", "--profile", "membership"),
    "leases": ("run", "--profile", "leases"),
    "lookups": ("run", "--profile", "lookups"),
    "copies": ("run", "--profile", "copies"),
    "masters": ("masters",),
}
"""The runs of the simulator in these groups, as arguments of `stelae sim`."""

SEEDS_PART = 200
"""A group of `make soak` runs so many seeds, so that an interrupted one repeats few."""


def parts_of(seeds: str) -> list[str]:
    """Return ranges of ``SEEDS_PART`` seeds that are those of the range ``A..B`` together."""
    first, last = map(int, seeds.split(".."))
    return [f"{low}..{min(low + SEEDS_PART - 1, last)}" for low in range(first, last + 1, SEEDS_PART)]


PASSED = ROOT / "build" / "soak"
"""A folder for each commit, with a file for each group of `make soak` that has passed on it."""


def clean_commit() -> str:
    """The commit, if the files are those of it; empty if some have changed, or there is no history."""
    try:
        status = subprocess.run(
            ("git", "status", "--porcelain"), cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        commit = subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "" if status else commit.stdout.strip()


def draw_of_this_change() -> int:
    """A number drawn from the commit: each change has another, and the same commit always the same."""
    try:
        asked = subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, check=True, capture_output=True, text=True)
        commit = asked.stdout[:7]
    except (OSError, subprocess.CalledProcessError):
        commit = "0"  # A copy of the files without their history.
    return int(commit, 16)


def seeds_of_this_change(count: int) -> str:
    """Seeds of a simulator, drawn from the commit."""
    first = 1_000 + draw_of_this_change()
    return f"{first}..{first + count - 1}"


SEEDS_SOAK = seeds_of_this_change(1_000)
"""Each soak runs other seeds. If they were always the same, the code would be fitted to them."""

DRAW = "STELAE_DRAW"
"""The variable by which a check chooses among the drawn tests (tests/drawing.py). A group by itself runs them all."""

NOT_LONG = ("-m", "not long")
"""Leaves out the tests that only `make soak` runs."""

MODULES = ("tests/unit", "tests/traces", "tests/conformance")
FLOORS = (
    "tests/sim/test_coverage.py",
    "tests/sim/test_member_floors.py",
    "tests/sim/test_copy_floors.py",
    "tests/sim/test_lookup_floors.py",
    "tests/sim/masters/test_coverage.py",
)
FLOORS_LEFT_OUT = tuple(f"--ignore={path}" for path in FLOORS)

GROUPS: dict[str, Command] = {
    "tidy": pytest("tests/tidy"),
    "modules": pytest("-n", "2", *NOT_LONG, *MODULES),
    **{
        group: tool("stelae", "sim", *RUNS[group], "--jobs", "1", "--seeds", seeds_of_this_change(count))
        for group, count in SEEDS_COUNTS.items()
    },
    "floors": pytest(*FLOORS),
    "mutants": pytest("-n", "2", "tests/sim", *FLOORS_LEFT_OUT),
    "e2e": pytest("-n", "3", "--dist", "loadfile", *NOT_LONG, "tests/e2e"),
    "spark": pytest("tests/spark"),
    "lint": tool("ruff", "check", "."),
    "format": tool("ruff", "format", "--check", "."),
    "types": tool("mypy"),
    "docs": tool("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html"),
}
"""The groups of `make check`, in the order in which they are reported."""

PARTS: dict[str, Command] = {
    "unit": pytest("-n", "2", "tests/unit"),
    "traces": pytest("tests/traces"),
    "conformance": pytest("-n", "2", "tests/conformance"),
}
"""Parts of `modules`, which collects them at once, to be run by name."""

WAITING = ("e2e",)
"""Groups of real processes, which mostly wait. Beside them run, one after the other, the groups of one process."""

ON_BOTH_CORES = ("modules", "mutants", "spark")
"""Groups that run afterwards, one after the other, each in two processes or more.

Those of `spark` are a JVM and its Python workers, which must connect to it within 10 seconds."""

SOAK: dict[str, Command] = {
    **{
        f"soak-{group}-{number}of{len(parts_of(SEEDS_SOAK))}": tool("stelae", "sim", *run, "--seeds", part)
        for group, run in RUNS.items()
        for number, part in enumerate(parts_of(SEEDS_SOAK), 1)
    },
    "soak-floors": at_length(pytest(*FLOORS)),
    "soak-mutants": at_length(pytest("-n", "2", "tests/sim", *FLOORS_LEFT_OUT)),
    "soak-modules": pytest("-n", "2", "-m", "long or drawn", *MODULES),
    "soak-fuzz": at_length(pytest("-n", "2", "-m", "hypothesis or fuzzer", "tests/unit", "tests/conformance")),
    "soak-hostile": at_length(pytest("-n", "2", "-m", "fuzzer", "tests/e2e")),
    # One test has faults for twenty minutes, and others kill a node at each of 75 steps.
    "soak-chaos": pytest(*LONG_TESTS, "tests/soak"),
    "soak-e2e": pytest("-n", "6", "--dist", "loadfile", "tests/e2e"),
    "soak-spark": pytest("tests/spark"),
    **{
        f"soak-demo-{wal}-{store}": tool("stelae", "demo", "--wal", wal, "--store", store)
        for wal, store in (("segmented", "columnar"), ("shared", "lmdb"), ("lmdb", "memory"))
    },
    "soak-demo-spark": tool("stelae", "spark", "demo"),
}
"""The groups of `make soak`, one after the other: they are meant to load the machine by themselves."""


def environment() -> dict[str, str]:
    """The environment of every group: Python keeps what it compiles, whatever the shell says.

    A check starts some two thousand interpreters. Each would compile our modules anew, and pytest's two workers every
    test: a quarter of the time of `modules`."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_group(group: str, extra: Command, *, at_once: bool) -> Result:
    """Run one group and time it. ``extra`` is appended to its command.

    ``at_once``: it runs by itself. Its output is printed while it runs, and it has all tests, also those that others
    have a share of."""
    variables = {name: value for name, value in environment().items() if name != DRAW}
    if not at_once:
        variables[DRAW] = str(draw_of_this_change())
    command = (GROUPS | PARTS | SOAK)[group] + extra
    title = f"\n== {group}: {Path(command[0]).name} {' '.join(command[1:])}"
    started = time.monotonic()
    if at_once:
        print(title, flush=True)
    into = None if at_once else subprocess.PIPE
    together = subprocess.STDOUT if into else None
    with subprocess.Popen(command, cwd=ROOT, env=variables, stdout=into, stderr=together) as run:
        output = run.stdout.read() if run.stdout is not None else b""
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    if not at_once:
        print(f"{title}\n{output.decode(errors='replace')}", end="", flush=True)
    seconds, cpu_s = time.monotonic() - started, used.ru_utime + used.ru_stime
    return Result(
        group=group, ok=run.returncode == 0, seconds=seconds, cpu_s=cpu_s, output=output.decode(errors="replace")
    )


def lanes_of(groups: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Return the lanes that run beside each other, and the groups that have both cores afterwards."""
    waiting = [group for group in groups if group in WAITING]
    afterwards = [group for group in groups if group in ON_BOTH_CORES]
    single = [group for group in groups if group not in (*waiting, *afterwards)]
    return [waiting, single], afterwards


def run_lanes(groups: Sequence[str]) -> list[Result]:
    """Run groups as :func:`lanes_of` has them; the results are in the order of ``groups``."""
    lanes, afterwards = lanes_of(groups)

    def run_lane(lane: list[str]) -> list[Result]:
        return [run_group(group, (), at_once=False) for group in lane]

    with ThreadPoolExecutor(len(lanes)) as pool:
        found = [result for lane in pool.map(run_lane, lanes) for result in lane]
    results = {result.group: result for result in [*found, *run_lane(afterwards)]}
    return [results[group] for group in groups]


def announce(groups: Sequence[str]) -> None:
    """Print what runs, and when."""
    (waiting, single), afterwards = lanes_of(groups)
    print(f"beside each other: {' '.join(waiting)} | {' '.join(single)}")
    print(f"then on both cores: {' '.join(afterwards)}")
    print("of the tests in tests/drawn_tests.txt one of eight, drawn from the commit; make soak runs all")
    seeds = ", ".join(f"{group} {seeds_of_this_change(count)}" for group, count in SEEDS_COUNTS.items())
    print(f"seeds of this commit: {seeds}", flush=True)


def say_what_is_left() -> None:
    """Print what a check leaves to `make soak`, with the commands."""
    print("left to make soak:")
    for group, command in SOAK.items():
        print(f"  {group}: {' '.join(Path(word).name if word == command[0] else word for word in command)}", flush=True)


def report(results: list[Result], total_s: float, budget_s: float | None) -> None:
    """Print the table that ends every run."""
    width = max([14, *(len(result.group) for result in results)])
    print(f"\n{'group':<{width}} seconds     cpu")
    for result in results:
        outcome = "ok" if result.ok else "FAILED"
        print(f"{result.group:<{width}} {result.seconds:7.1f} {result.cpu_s:7.1f}  {outcome}")
    cpu_s = sum(result.cpu_s for result in results)
    budget = f"  of {budget_s} budgeted on two quiet cores" if budget_s else ""
    print(f"{'total':<{width}} {total_s:7.1f} {cpu_s:7.1f}{budget}", flush=True)


def failures_in(output: str) -> list[str]:
    """Return the lines by which pytest names its failed tests, or the last lines of another program."""
    lines = [line for line in output.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith(("FAILED tests/", "ERROR tests/"))]
    return named or lines[-LAST_LINES_COUNT:]


def say_what_failed(results: Sequence[Result]) -> None:
    """Print, as the last lines of a run, what is wrong in each group that failed."""
    for result in results:
        if not result.ok:
            print(f"\nFAILED: {result.group}")
            for line in failures_in(result.output):
                print(f"  {line}", flush=True)


def run_all(groups: Sequence[str]) -> int:
    """Run every group of a check or some of them, in lanes; return the exit code."""
    started = time.monotonic()
    announce(groups)
    results = run_lanes(groups)
    if set(groups) == set(GROUPS):
        say_what_is_left()
    report(results, time.monotonic() - started, BUDGET_S)
    say_what_failed(results)
    return 0 if all(result.ok for result in results) else 1


def run_in_order(groups: Sequence[str], extra: Command = ()) -> int:
    """Run groups one after the other, with their output as it comes; return the exit code."""
    started = time.monotonic()
    results = [run_group(group, extra, at_once=True) for group in groups]
    report(results, time.monotonic() - started, None)
    return 0 if all(result.ok for result in results) else 1


def run_soak() -> int:
    """Run the groups of a soak that have not passed on this commit; return the exit code."""
    started, commit = time.monotonic(), clean_commit()
    record = PASSED / commit
    results = []
    print(f"seeds of this commit: {SEEDS_SOAK}", flush=True)
    for group in SOAK:
        if commit and (record / group).exists():
            print(f"== {group}: has passed on this commit", flush=True)
            continue
        results.append(run_group(group, (), at_once=True))
        if results[-1].ok and commit and clean_commit() == commit:
            record.mkdir(parents=True, exist_ok=True)
            (record / group).touch()
    report(results, time.monotonic() - started, None)
    return 0 if all(result.ok for result in results) else 1


def main(arguments: list[str]) -> int:
    """Run the groups named on the command line, those of a check, or the long ones."""
    if arguments == ["--check"]:
        return run_all([*GROUPS])
    if arguments == ["--soak"]:
        return run_soak()
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    groups, extra = arguments[:cut], tuple(arguments[cut + 1 :])
    known = GROUPS | PARTS | SOAK
    unknown = [group for group in groups if group not in known]
    if unknown or not groups:
        print(f"unknown groups: {unknown}; there are: {' '.join(known)}", file=sys.stderr)
        return 2
    if extra and len(groups) > 1:
        print("arguments can be passed on to a single group only", file=sys.stderr)
        return 2
    return run_in_order(groups, extra) if len(groups) == 1 else run_all(groups)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
