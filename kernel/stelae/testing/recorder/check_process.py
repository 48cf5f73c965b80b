"""The child process that opens crash states with the real engine and checks them.

``python -m stelae.testing.recorder.check_process SPEC`` reads one request from each line and answers each with one
line. Reading a cut file through a mapping can kill the process. Then its parent reports that."""

from __future__ import annotations

import os
import sys
import traceback

import msgspec

from stelae.spi.errors import StelaeError
from stelae.testing.conformance.wal_crash_scenarios import check_after_crash
from stelae.testing.native_harness import NativeHarness
from stelae.testing.recorder.scenario import ScenarioStage, Spec, named, run_until


class CheckRequest(msgspec.Struct, frozen=True):
    """A state to check: the directory above the engine's, and the stage of the scenario at the crash."""

    root: str
    stage: ScenarioStage


class CheckAnswer(msgspec.Struct, frozen=True):
    """The result of a check. ``wrong`` is empty if the state is possible."""

    wrong: str = ""


def check(spec: Spec, request: CheckRequest) -> str:
    """Open the state, read, append, crash, and open again. Return what is wrong, or an empty text."""
    harness = NativeHarness(spec.engine_type(), request.root, spec.settings())
    os.chdir(f"{request.root}/0")
    try:
        check_after_crash(harness, run_until(spec.steps(), request.stage))
        if spec.also:
            os.chdir(f"{request.root}/1")
            named(spec.also)(harness, request.stage)
    except (AssertionError, StelaeError, OSError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {last.name}: {error}"[:2000]
    finally:
        os.chdir("/")
    return ""


def main() -> None:
    """Answer requests until the input ends."""
    spec = msgspec.json.decode(sys.argv[1], type=Spec)
    spec.prepare()
    for line in sys.stdin.buffer:
        answer = CheckAnswer(check(spec, msgspec.json.decode(line, type=CheckRequest)))
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
