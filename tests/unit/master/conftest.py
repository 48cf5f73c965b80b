"""A company with a tablet, and the planner that tests speak through, for whoever asks for them."""

from __future__ import annotations

import pytest

from tests.unit.master.company import Company
from tests.unit.master.planned import Planner, with_a_tablet


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
def company(planner: Planner) -> Company:
    return with_a_tablet(planner)
