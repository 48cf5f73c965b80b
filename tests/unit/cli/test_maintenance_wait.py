"""The wait of `stelae tserver maintenance`, on snapshots of the cluster that the test gives, and the limit of waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stelae.cli import run_server_modes
from stelae.cli.kit.longest_wait import FOREVER_S, longest_wait_s
from stelae.cli.kit.status_line import StatusLine
from stelae.cli.run_server_modes import _until_led_by_others
from stelae.client.retirement import Leaderships
from stelae.protocol.catalog_names import ServerMode
from stelae.protocol.master_messages import ServerLine
from stelae.spi.errors import CallerError, DeadlineExceeded
from stelae.spi.policy import PolicySnapshot
from stelae.testing.conformance.policy_model import ModelCluster, node_name, node_view

SERVER = ServerLine(
    node_id=node_name(1), address="one:1", location="", mode=ServerMode.MAINTENANCE, silent_ms=0
)  # fmt: skip


class Masters:
    """A catalog that shows the cluster with fewer and fewer tablets that the server leads; the last look stays."""

    def __init__(self, *leads: int, alone: int = 0) -> None:
        self._leads, self._alone, self.looks = list(leads), alone, 0

    async def policy_snapshot(self) -> PolicySnapshot:
        self.looks += 1
        leads = self._leads.pop(0) if len(self._leads) > 1 else self._leads[0]
        model = ModelCluster([node_view(number) for number in range(1, 4)])
        for number in range(5):
            model.create(f"t{number}", (1, 2, 3) if number < leads else (2, 1, 3))
        for number in range(self._alone):
            model.create(f"alone{number}", (1,), factor=1)
        return model.snapshot()


def waited(masters: Any, wait_s: float | None) -> Leaderships:
    return asyncio.run(_until_led_by_others(masters, SERVER, StatusLine(True), wait_s))


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_server_modes, "POLL_S", 0.0)


def test_it_ends_once_the_server_leads_nothing_that_another_replica_could_lead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    masters = Masters(3, 2, 2, 0, alone=1)
    assert waited(masters, FOREVER_S) == Leaderships(left=0, alone=1) and masters.looks == 4
    assert "one:1: it leads 3 tablets that other replicas could lead" in capsys.readouterr().err


def test_without_a_wait_it_looks_once_and_a_wait_that_is_over_says_what_is_left() -> None:
    assert waited(Masters(3), None) == Leaderships(left=3, alone=0)
    with pytest.raises(DeadlineExceeded, match=r"after 0 s it leads 1 tablet .* Repeat the command to wait on"):
        waited(Masters(1), 0.0)


def test_the_longest_wait_needs_a_wait_and_none_is_as_long_as_it_takes() -> None:
    assert (longest_wait_s(False, 0.0), longest_wait_s(True, 0.0), longest_wait_s(True, 5.0)) == (None, FOREVER_S, 5.0)
    with pytest.raises(CallerError, match="--wait-s needs --wait"):
        longest_wait_s(False, 5.0)
