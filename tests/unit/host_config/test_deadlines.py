"""The longest deadline that a node's file may set, beside the deadlines that nodes and commands use."""

from __future__ import annotations

import dataclasses

import pytest

from stelae.client import call_times
from stelae.server.master.driver import change_masters, leader_read_index, master, master_comparison, masters_watch
from stelae.server.tserver import heartbeats
from stelae.spi.settings import limits_of
from stelae.wire.settings import WireSettings


@pytest.mark.parametrize(
    "deadline_ms",
    [
        heartbeats.CALL_MS,
        master.ACTION_MS,
        change_masters.ANSWER_MS,
        master_comparison.ANSWER_MS,
        masters_watch.CALL_MS,
        leader_read_index.READ_INDEX_MS,
        call_times.TRANSFER_MS,
    ],
)
def test_no_file_can_forbid_the_deadline_of_a_call_that_nodes_make(deadline_ms: int) -> None:
    """With 1000 ms a tablet server ended at its first heartbeat, and with 20 000 ms a master at its first action."""
    (field,) = (one for one in dataclasses.fields(WireSettings) if one.name == "deadline_ms_max")
    low = limits_of(field).low
    assert low is not None and deadline_ms <= low
