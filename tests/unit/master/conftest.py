"""A cluster with a tablet, and the planner that tests speak through, for whoever asks for them."""

from __future__ import annotations

import pytest

from tests.unit.master.master_with_servers import MasterWithServers
from tests.unit.master.planned import Planner, with_a_tablet


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
def cluster(planner: Planner) -> MasterWithServers:
    return with_a_tablet(planner)
