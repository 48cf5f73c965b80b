"""The child that is killed: it appends for ever, and says so on its output each time that a group is durable.

``python -m stelae.testing.recorder.endless SPEC DIRECTORY LAST``: the log ends at index ``LAST`` when it begins."""

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
    """Append groups of three entries behind ``last``."""
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
