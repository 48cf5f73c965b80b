"""What holds for every test: examples are drawn the same way each time, and no clock judges them.

A property test that fails today must fail tomorrow on another machine, so the draws derive from the
test itself. Wider searches are a matter of a larger ``max_examples`` where a test asks for it, and of `make soak`,
which draws more examples, and others each time, and prints how to repeat one that fails.

The width of whoever's terminal is taken out of the environment, where readline puts it for the processes of xdist: what
is printed into a pipe is not wrapped, unless a test says how wide it is."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from stelae.local.ports import VARIABLE
from tests.at_length import AT_LENGTH, times
from tests.drawing import draw_of_this_run, left_out, unit_of
from tests.worker_ports import ports_of_worker

for variable in ("COLUMNS", "LINES"):
    os.environ.pop(variable, None)

if "PYTEST_XDIST_WORKER" in os.environ:
    count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ[VARIABLE] = ports_of_worker(os.environ["PYTEST_XDIST_WORKER"], count)

settings.register_profile(
    "stelae",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("soak", settings.get_profile("stelae"), max_examples=times(100), derandomize=False)
settings.load_profile("soak" if AT_LENGTH else "stelae")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that are drawn, and leave out those that the draw of this run has not chosen."""
    for item in items:
        if unit_of(item.nodeid) is not None:
            item.add_marker("drawn")
    draw = draw_of_this_run()
    if draw is None:
        return
    names = left_out([item.nodeid for item in items], draw)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in names])
    items[:] = [item for item in items if item.nodeid not in names]


def pytest_collection_finish() -> None:
    """Set apart what was collected and imported: the collector would look through it again and again."""
    gc.collect()
    gc.freeze()
