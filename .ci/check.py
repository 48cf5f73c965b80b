"""Run groups of checks one after the other, then say how long each took.

    python .ci/check.py GROUP... [-- arguments for the command of a single group]

Every group runs even after one has failed, so one run shows all that is wrong. The exit code is 0
only if every group passed."""

from __future__ import annotations

import subprocess
import sys
import time
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


def tool(name: str, *arguments: str) -> Command:
    """A command that is installed beside this interpreter."""
    return (str(BIN / name), *arguments)


SEEDS = "101..300"
"""What `sim` runs: the first hundred are run in `mutants`, where more is asked of them (tests/sim/test_coverage.py)."""

GROUPS: dict[str, Command] = {
    "tidy": pytest("tests/tidy"),
    "unit": pytest("-n", "2", "tests/unit"),
    "traces": pytest("tests/traces"),
    "conformance": pytest("-n", "2", "tests/conformance"),
    "sim": tool("stelae", "sim", "run", "--seeds", SEEDS),
    "mutants": pytest("-n", "2", "--dist", "loadfile", "tests/sim"),
    "e2e": pytest("-n", "2", "--dist", "loadfile", "tests/e2e"),
    "lint": tool("ruff", "check", "."),
    "format": tool("ruff", "format", "--check", "."),
    "types": tool("mypy"),
    "docs": tool("sphinx-build", "-W", "--keep-going", "-q", "-b", "html", "docs", "docs/_build/html"),
}


def run_group(group: str, extra: Command) -> Result:
    """Run one group in the foreground and time it; ``extra`` is appended to its command."""
    command = GROUPS[group] + extra
    print(f"\n== {group}: {Path(command[0]).name} {' '.join(command[1:])}", flush=True)
    started = time.monotonic()
    ok = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    return Result(group=group, ok=ok, seconds=time.monotonic() - started)


def report(results: list[Result]) -> None:
    """Print the table that ends every run."""
    print("\ngroup          seconds")
    for result in results:
        print(f"{result.group:<14} {result.seconds:7.1f}  {'ok' if result.ok else 'FAILED'}")
    total = sum(result.seconds for result in results)
    print(f"{'total':<14} {total:7.1f}  of {BUDGET_S} budgeted", flush=True)


def main(arguments: list[str]) -> int:
    """Run the groups named on the command line."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    groups, extra = arguments[:cut], tuple(arguments[cut + 1 :])
    unknown = [group for group in groups if group not in GROUPS]
    if unknown or not groups:
        print(f"unknown groups: {unknown}; there are: {' '.join(GROUPS)}", file=sys.stderr)
        return 2
    if extra and len(groups) > 1:
        print("arguments can be passed on to a single group only", file=sys.stderr)
        return 2
    results = [run_group(group, extra) for group in groups]
    report(results)
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
