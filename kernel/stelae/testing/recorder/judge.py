"""The child that opens what a crash may have left, with the real engine, and judges it.

``python -m stelae.testing.recorder.judge SPEC`` reads one request for each line and answers each with one line. A
file that was cut can kill whoever reads it through a map: then this process dies, and its parent says so."""

from __future__ import annotations

import os
import sys
import traceback

import msgspec

from stelae.spi.errors import StelaeError
from stelae.testing.conformance.wal_crashes import check_after_crash
from stelae.testing.recorder.scenario import ScenarioStage, Spec, life_at, named
from stelae.testing.wal_native import NativeHarness


class JudgeRequest(msgspec.Struct, frozen=True):
    """A directory as a crash left it, the one above the engine's, and when that was."""

    root: str
    stage: ScenarioStage


class JudgeAnswer(msgspec.Struct, frozen=True):
    """What is wrong with it; empty if nothing is."""

    wrong: str = ""


def judged(spec: Spec, request: JudgeRequest) -> str:
    """Open, read, append, die, and open again; return what was wrong."""
    harness = NativeHarness(spec.engine_type(), request.root, spec.settings())
    os.chdir(f"{request.root}/0")
    try:
        check_after_crash(harness, life_at(spec.steps(), request.stage))
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
    """Answer requests until there are no more."""
    spec = msgspec.json.decode(sys.argv[1], type=Spec)
    spec.prepare()
    for line in sys.stdin.buffer:
        answer = JudgeAnswer(judged(spec, msgspec.json.decode(line, type=JudgeRequest)))
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
