"""Services of plugins: chosen by name in ``node.toml``, with settings of their own, and with errors that name them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.config.node_toml import parse_config
from stelae.config.registry import Registry
from stelae.host.settings import NodeConfig
from stelae.spi.errors import ConfigError, PluginError, Unavailable
from stelae.spi.hooks import LeaderChanged, hookimpl
from stelae.spi.ids import TabletId
from stelae.spi.settings import setting
from tests.unit.host_config.plugins import Point, plugin, working

SMALL = '[node]\ndirectory = "d"\nlisten = "127.0.0.1:0"\n[cluster]\nid = "c"\n'
CHOSEN = SMALL + '[plugins]\nservices = ["audit"]\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """One setting."""

    lines_max: int = setting(10, unit="count", low=1, high=100, reason="a test")


class Heard:
    """A service that notes what is done to it, and raises what it is told to."""

    def __init__(self, notes: list[str], errors: dict[str, BaseException]) -> None:
        self._notes, self._errors = notes, errors
        self._do("made")

    def start(self) -> None:
        self._do("started")

    def stop(self) -> None:
        self._do("stopped")

    def _do(self, what: str) -> None:
        if what in self._errors:
            raise self._errors[what]
        self._notes.append(what)


def never() -> Any:
    raise AssertionError("imported, although nothing has chosen it")


def service(notes: list[str], errors: dict[str, BaseException] | None = None, **more: Any) -> SimpleNamespace:
    made = plugin(stelae_services=lambda: [lambda node: Heard(notes, errors or {})])
    vars(made).update(more)
    return made


def parse(text: str, found: Registry) -> NodeConfig:
    return parse_config(text, "node.toml", found)


def refused(text: str, found: Registry) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, found)
    return str(caught.value)


def test_a_service_runs_only_if_it_is_chosen_and_after_those_of_the_node() -> None:
    notes: list[str] = []
    found = working(Point("service.audit", lambda: service(notes)), Point("service.other", never))
    found.register(plugin(stelae_services=lambda: [lambda node: "own"]), "service.tserver")
    parse(SMALL, found)
    assert len(found.services()) == 1
    parse(CHOSEN, found)
    own, added = (factory(None) for factory in found.services())
    added.start()
    added.stop()
    assert (str(own), notes) == ("own", ["made", "started", "stopped"])


def test_its_settings_are_those_of_its_section_or_the_defaults() -> None:
    found = working(Point("service.audit", lambda: service([], Config=AuditConfig)))
    assert parse(CHOSEN, found).extra["service.audit"] == AuditConfig(lines_max=10)
    assert parse(CHOSEN + "[service.audit]\nlines_max = 3\n", found).extra["service.audit"] == AuditConfig(lines_max=3)
    assert "1 to 100 count" in refused(CHOSEN + "[service.audit]\nlines_max = 0\n", found)


def test_the_section_of_an_installed_service_that_is_not_chosen_is_left_alone() -> None:
    parse(SMALL + "[service.audit]\nlines_max = 3\n", working(Point("service.audit", never)))


def test_a_plugin_of_observers_alone_hears() -> None:
    heard: list[LeaderChanged] = []

    class Observer:
        @hookimpl
        def stelae_leader_changed(self, event: LeaderChanged) -> None:
            heard.append(event)

    found = working(Point("service.audit", Observer))
    assert parse(CHOSEN, found).extra["service.audit"] is None
    event = LeaderChanged(tablet_id=TabletId("t"), term=1, leader=None)
    found.leader_changed(event)
    assert (heard, found.services()) == ([event], [])


@pytest.mark.parametrize(
    ("section", "line", "words"),
    [
        ('services = ["audit", "adit"]', 7, ["there is no service 'adit'", "installed services: audit, broken"]),
        ('services = ["audit", "audit"]', 7, ["service 'audit' is repeated"]),
        ('services = "audit"', 7, ["services must be an array, not 'audit'"]),
        ("services = [1]", 7, ["services[0] must be a string, not 1"]),
        ('services = ["broken"]', 7, ["plugin service.broken", "libfoo is missing", "stelae plugins check"]),
        ('service = ["audit"]', 7, ["unknown key 'service' in [plugins]", "Did you mean 'services'?"]),
        ('services = ["audit"]\n[service.audit]\nx = 1', 9, ["unknown key 'x' in [service.audit]"]),
        ("[service.adit]", 7, ["unknown key 'adit' in [service]", "Did you mean 'audit'?"]),
    ],
)
def test_a_wrong_choice_is_refused_at_its_line(section: str, line: int, words: list[str]) -> None:
    def explode() -> Any:
        raise ImportError("libfoo is missing")

    found = working(Point("service.audit", lambda: service([])), Point("service.broken", explode))
    message = refused(f"{SMALL}[plugins]\n{section}\n", found)
    assert message.startswith(f"node.toml:{line}: "), message
    for word in words:
        assert word in message


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    low: int = setting(1, reason="a test")
    high: int = setting(5, reason="a test")

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} is above high {self.high}")


def test_values_that_the_class_of_a_plugin_refuses_together_are_refused_at_their_section() -> None:
    found = working(Point("service.audit", lambda: service([], Config=Ordered)))
    message = refused(f"{CHOSEN}[service.audit]\nlow = 9\n", found)
    assert message.startswith("node.toml:8: the values in [service.audit] do not fit each other: low 9 is above high 5")


def test_settings_that_cannot_be_used_are_refused() -> None:
    found = working(Point("service.audit", lambda: service([], Config=dict)))
    assert "plugin service.audit: its Config is not a dataclass" in refused(CHOSEN, found)


@pytest.mark.parametrize(("step", "fact"), [("made", "cannot be made"), ("started", "cannot start")])
def test_an_error_at_the_start_names_the_plugin_and_that_of_stelae_is_kept(step: str, fact: str) -> None:
    for error, wanted in ((ValueError("no file"), PluginError), (Unavailable("no file"), Unavailable)):
        found = working(Point("service.audit", lambda given=error: service([], {step: given})))  # type: ignore[misc]
        parse(CHOSEN, found)
        with pytest.raises(wanted, match="no file") as caught:
            found.services()[0](None).start()
        assert (f"plugin service.audit: the service {fact}: ValueError" in str(caught.value)) == (wanted is PluginError)


@pytest.mark.parametrize(("step", "fact"), [("made", "cannot be made"), ("started", "cannot start")])
def test_a_service_that_wants_to_end_the_process_is_refused_with_its_name(step: str, fact: str) -> None:
    """The node ended with the exit code of the service, and without a message."""
    found = working(Point("service.audit", lambda: service([], {step: SystemExit(3)})))
    parse(CHOSEN, found)
    with pytest.raises(PluginError, match=f"plugin service.audit: the service {fact}: SystemExit"):
        found.services()[0](None).start()


def test_an_observer_or_a_stop_that_wants_to_end_the_process_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Leaves:
        @hookimpl
        def stelae_leader_changed(self, event: LeaderChanged) -> None:
            raise SystemExit(3)

    found = working(Point("service.audit", lambda: service([], {"stopped": SystemExit(4)})))
    parse(CHOSEN, found)
    found.register(Leaves())
    with caplog.at_level(logging.ERROR):
        found.leader_changed(LeaderChanged(tablet_id=TabletId("t"), term=1, leader=None))
        found.services()[0](None).stop()
    assert "an observer raised" in caplog.text and "plugin service.audit: the service cannot stop" in caplog.text


def test_an_error_of_stelae_at_the_start_is_logged_with_the_name_of_the_plugin(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two handlers for one kind of message ended the node with an error that named no plugin."""
    found = working(Point("service.audit", lambda: service([], {"started": Unavailable("no port")})))
    parse(CHOSEN, found)
    with caplog.at_level(logging.ERROR), pytest.raises(Unavailable):
        found.services()[0](None).start()
    assert "plugin service.audit: the service cannot start" in caplog.text


async def _later() -> None: ...


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (SimpleNamespace(start=_later, stop=print), "start of the service is a coroutine; services are synchronous"),
        (SimpleNamespace(start=print, stop=_later), "stop of the service is a coroutine; services are synchronous"),
        (SimpleNamespace(start=print), "has no method stop"),
        (None, "the service None has no method start"),
    ],
)
def test_a_service_that_could_not_be_started_or_stopped_is_refused(made: object, message: str) -> None:
    """A coroutine was never awaited: the node ran without the service. One without ``stop`` was found at the end."""
    found = working(Point("service.audit", lambda: plugin(stelae_services=lambda: [lambda node: made])))
    parse(CHOSEN, found)
    with pytest.raises(PluginError, match=f"plugin service.audit: .*{message}"):
        found.services()[0](None)


def test_a_service_that_cannot_stop_leaves_the_end_of_the_node_alone(caplog: pytest.LogCaptureFixture) -> None:
    found = working(Point("service.audit", lambda: service([], {"stopped": ValueError("no file")})))
    parse(CHOSEN, found)
    with caplog.at_level(logging.ERROR):
        found.services()[0](None).stop()
    assert "plugin service.audit: the service cannot stop" in caplog.text
