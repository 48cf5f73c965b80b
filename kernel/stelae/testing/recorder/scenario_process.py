"""The child process that is recorded: it opens an engine, does the steps of a scenario, and marks each step.

``python -m stelae.testing.recorder.scenario_process SPEC DIRECTORY MARKS``. A mark is a line appended to a file outside
of the engine's directory: ``begin N`` and ``done N`` around each step. A scenario without steps only opens and closes
the engine."""

from __future__ import annotations

import os
import sys

import msgspec

from stelae.machine.files import RealFiles
from stelae.spi.wal import WalEngine
from stelae.testing.conformance.wal_crash_scenarios import CrashRun
from stelae.testing.recorder.scenario import Spec, reopen
from stelae.testing.wal_harness import fake_services


def run_scenario(spec: Spec, directory: str, marks: str) -> None:
    """Open the engine, do all steps of a scenario, and close."""
    spec.prepare()
    os.chdir(os.path.dirname(directory))
    lines = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    engine, run = _opened(spec, directory), CrashRun()
    for number, step in enumerate(spec.steps()):
        os.write(lines, b"begin %d\n" % number)
        if step is reopen:
            engine.close()
            engine = _opened(spec, directory)
        step(engine, run)
        os.write(lines, b"done %d\n" % number)
    engine.close()
    os.close(lines)


def _opened(spec: Spec, directory: str) -> WalEngine:
    return spec.engine_type().open(directory, spec.settings(), fake_services(RealFiles()))


if __name__ == "__main__":
    run_scenario(msgspec.json.decode(sys.argv[1], type=Spec), sys.argv[2], sys.argv[3])
