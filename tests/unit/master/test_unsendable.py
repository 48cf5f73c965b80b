"""A message that cannot be sent ends one action or one answer, and not the master."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.protocol.actions import DeleteReplica, Terminal
from stelae.protocol.catalog_names import TabletState
from stelae.protocol.codec import encode
from stelae.protocol.master_messages import READ, CatalogReadRequest, Currency, ListTables
from stelae.server.master.core.events import Effect, ReadAsked, Reply, Send
from stelae.spi.errors import CallerError, ConfigError, StelaeError, TooLarge
from stelae.spi.ids import TabletId
from tests.unit.master.driver_on_fakes import DriverOnFakes
from tests.unit.master.master_with_servers import ME, OTHER, SERVERS

ACTION = DeleteReplica(node_id=SERVERS[0], tablet_id=TabletId("d" * 32), fence=Terminal(state=TabletState.REMOVED))


def raising(error: StelaeError) -> Any:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


def decide(driver: DriverOnFakes, *effects: Effect) -> None:
    """Have the core return effects from its next step, which is taken at once."""
    core = driver.master.core
    assert core is not None
    taken = core.take_effects
    once = iter([effects])
    core.take_effects = lambda: next(once, taken())  # type: ignore[method-assign]
    driver.elect(driver.replica.status.term + 1, ME)


@pytest.mark.parametrize(
    ("method", "error"), [("call", TooLarge("a frame", 99, 64)), ("add_peer", ConfigError("not host:port"))]
)
def test_an_action_that_cannot_be_sent_is_refused_and_the_others_are_sent(
    method: str, error: StelaeError, caplog: pytest.LogCaptureFixture
) -> None:
    driver, failures, counted = DriverOnFakes(), [], []  # type: ignore[var-annotated]
    driver.replica.fail = failures.append
    driver.node.metrics.count = lambda name, *_: counted.append(name)
    working = getattr(driver.node.messenger, method)
    setattr(driver.node.messenger, method, raising(error))
    with caplog.at_level(logging.INFO):
        decide(driver, Send("s:1", ACTION))
    assert failures == [] and driver.master.core is not None
    assert counted.count("master_actions_refused") == 1 and "master_actions_sent" not in counted
    assert f"action not taken action=DeleteReplica tablet={'d' * 32} server={SERVERS[0]}: {error}" in caplog.text
    setattr(driver.node.messenger, method, working)
    driver.calls.clear()
    decide(driver, Send("s:1", ACTION))
    assert (SERVERS[0], "tserver.act") in driver.calls


def test_an_answer_that_no_message_can_hold_refuses_its_request() -> None:
    driver, failures, refused = DriverOnFakes(), [], []  # type: ignore[var-annotated]
    driver.replica.fail = failures.append
    body = encode(CatalogReadRequest(question=ListTables()))
    request = SimpleNamespace(sender=OTHER, kind=READ, body=[body], refuse=refused.append, reply=failures.append)
    driver.handlers[READ](request)
    [asked] = [event for event in driver.master._events if isinstance(event, ReadAsked)]
    decide(driver, Reply(asked.token, Currency(current=2**64)))  # type: ignore[arg-type]
    assert failures == [] and driver.master.core is not None
    assert [type(error) for error in refused] == [CallerError] and "Currency cannot be sent" in str(refused[0])
