"""The child process that appends until it is killed. It prints the last index of each durable group.

``python -m stelae.testing.recorder.append_process SPEC DIRECTORY LAST``: the log ends at index ``LAST`` at first."""

from __future__ import annotations

import sys

import msgspec

from stelae.machine.files import RealFiles
from stelae.spi.ids import ZERO
from stelae.spi.wal import Append
from stelae.testing.recorder.scenario import Spec
from stelae.testing.wal_harness import fake_services
from stelae.testing.wal_model import LOG, commit, entries


def append_for_ever(spec: Spec, directory: str, last: int) -> None:
    """Append groups of three entries after ``last``, without end."""
    spec.prepare()
    engine = spec.engine_type().open(directory, spec.settings(), fake_services(RealFiles()))
    if LOG not in engine.logs():
        engine.create(LOG, ZERO)
    while True:
        commit(engine, Append(entries=entries(last + 1, 3, size_bytes=300)))
        last += 3
        print(last, flush=True)


if __name__ == "__main__":
    append_for_ever(msgspec.json.decode(sys.argv[1], type=Spec), sys.argv[2], int(sys.argv[3]))
