"""The registry: names without imports, one clear sentence for everything that is wrong."""

from __future__ import annotations

import dataclasses
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import pytest

from stelae.config.contracts import EngineKind
from stelae.config.plugins import BrokenPlugin
from stelae.config.registry import DuplicateEngine, Registry, UnknownEngine
from stelae.spi.errors import PluginError
from stelae.spi.extras import MissingExtra, require
from stelae.spi.hooks import LeaderChanged, TabletStateChanged, hookimpl
from stelae.spi.ids import NodeId, TabletId
from stelae.spi.policy import MasterPolicy
from tests.unit.host_config.plugins import Dist, Point, WalConfig, offering, plugin, policy, wal, working

WALS = "stelae_wal_engines"


def imports(module: str) -> Any:
    raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def never() -> Any:
    raise AssertionError("this plugin must not be imported")


def test_a_registered_engine_is_found_by_kind_and_name() -> None:
    engine = wal("mine")
    registry = Registry()
    registry.register(offering(WALS, engine))
    assert registry.engine(EngineKind.WAL, "mine") is engine


def test_names_are_known_without_importing_anything() -> None:
    registry = Registry([Point("wal.far", never), Point("store.near", never)])
    assert registry.names(EngineKind.WAL) == ["far"]
    assert [(o.kind, o.name) for o in registry.offers()] == [("store", "near"), ("wal", "far")]


def test_only_the_plugin_that_is_picked_is_imported() -> None:
    engine = wal("mine")
    points = [Point("wal.far", never), Point("wal.mine", lambda: offering(WALS, engine))]
    assert Registry(points).engine(EngineKind.WAL, "mine") is engine


def test_one_plugin_may_register_several_engines_and_kinds() -> None:
    both = plugin(stelae_wal_engines=lambda: [wal("a"), wal("b")], stelae_master_policies=lambda: [policy("p")])
    registry = Registry([Point("wal.a", lambda: both), Point("policy.p", lambda: both)])
    registry.engine(EngineKind.WAL, "a")
    registry.engine(EngineKind.POLICY, "p")
    assert registry.names(EngineKind.WAL) == ["a", "b"]


def test_registering_the_same_plugin_twice_is_once() -> None:
    registry, same = Registry(), offering(WALS, wal("a"))
    registry.register(same)
    registry.register(same)
    assert registry.names(EngineKind.WAL) == ["a"]


def test_an_unknown_name_lists_the_known_and_the_broken_ones() -> None:
    points = [Point("wal.good", lambda: offering(WALS, wal("good"))), Point("wal.bad", lambda: imports("gone"))]
    with pytest.raises(UnknownEngine, match="known wal engines: good; installed but broken: bad"):
        Registry(points).engine(EngineKind.WAL, "nope")


def test_an_unknown_name_without_any_plugin_says_so() -> None:
    with pytest.raises(UnknownEngine, match="known wal engines: none"):
        Registry().engine(EngineKind.WAL, "nope")


def test_a_broken_plugin_is_named_with_its_distribution_and_cause() -> None:
    def explode() -> Any:
        raise ValueError("bad table")

    registry = Registry([Point("wal.bad", explode)])
    with pytest.raises(BrokenPlugin, match=r"stelae-extra 9\.1 .*ValueError: bad table"):
        registry.engine(EngineKind.WAL, "bad")


@pytest.mark.parametrize(("name", "told"), [("timeline", "timeline"), ("wall.timeline", r"wall\.timeline")])
def test_an_entry_point_that_nothing_loads_is_named_with_the_kinds_that_there_are(name: str, told: str) -> None:
    """The dot was forgotten, or the kind is misspelt. `plugins check` loads each entry point by kind and name."""
    registry = Registry([Point(name, never)])
    (offer,) = registry.offers()
    with pytest.raises(PluginError, match=f"entry point '{told}' of stelae-extra 9.1 is not loaded.*KIND.NAME.*wal"):
        registry.load(f"{offer.kind}.{offer.name}")


def test_a_plugin_that_ends_the_interpreter_when_it_is_imported_is_broken_like_another_one() -> None:
    """A broken plugin costs `stelae --help` a warning, and no more."""

    def leaves() -> Any:
        sys.exit("libfoo is missing")

    registry = Registry([Point("cli.leaves", leaves)])
    (problem,) = registry.load_kind("cli")
    assert isinstance(problem, BrokenPlugin) and "SystemExit: libfoo is missing" in str(problem)


def test_an_engine_whose_optional_module_is_within_a_missing_package_is_refused() -> None:
    registry = Registry()
    registry.register(offering(WALS, wal("x", optional_modules={"no_such_package.part": "fast"})))
    with pytest.raises(MissingExtra, match=r"no_such_package\.part"):
        registry.engine(EngineKind.WAL, "x")


def test_two_plugins_may_be_objects_of_the_same_name() -> None:
    registry = Registry()
    for number in (1, 2):
        named = offering(WALS, wal(f"engine{number}"))
        named.__name__ = "Plugin"
        registry.register(named, f"wal.engine{number}")
    assert registry.names(EngineKind.WAL) == ["engine1", "engine2"]


def test_a_missing_package_of_an_extra_names_the_extra() -> None:
    dist = Dist(requires=["orjson>=3", 'py-lmdb>=1.5; extra == "lmdb"'])
    registry = Registry([Point("wal.x", lambda: imports("py_lmdb"), dist=dist)])
    with pytest.raises(MissingExtra, match=r"pip install 'stelae\[lmdb\]'"):
        registry.engine(EngineKind.WAL, "x")


def test_an_engine_that_lists_optional_modules_is_refused_without_them() -> None:
    needy = wal("needy", optional_modules={"no_such_module_at_all": "big"})
    registry = Registry()
    registry.register(offering(WALS, needy))
    with pytest.raises(MissingExtra, match=r"wal engine 'needy' needs .*stelae\[big\]"):
        registry.engine(EngineKind.WAL, "needy")


def test_require_imports_what_is_there_and_names_the_extra_otherwise() -> None:
    assert require("dataclasses", extra="x") is dataclasses
    with pytest.raises(MissingExtra, match=r"stelae\[big\]"):
        require("no_such_module_at_all.part", extra="big", wanted_by="store 'x'")


def test_the_place_of_a_failed_import_is_named() -> None:
    def explode() -> Any:
        raise NameError("name 'os' is not defined")

    registry = Registry([Point("wal.mine", explode)])
    with pytest.raises(BrokenPlugin, match=r"NameError: name 'os' .*\) at .*test_registry\.py:\d+; reinstall"):
        registry.engine(EngineKind.WAL, "mine")


def test_a_name_announced_twice_names_both_distributions() -> None:
    points = [Point("wal.x", never), Point("wal.x", never, dist=Dist("other", "2"))]
    registry = Registry(points)
    for refused in (registry.check_names, lambda: registry.engine(EngineKind.WAL, "x")):
        with pytest.raises(DuplicateEngine, match=r"stelae-extra 9\.1 .* and other 2"):
            refused()


def test_a_name_registered_twice_is_refused_and_the_first_one_stands() -> None:
    registry, first = Registry(), wal("x")
    registry.register(offering(WALS, first), "one")
    with pytest.raises(DuplicateEngine, match="by one and again by two"):
        registry.register(offering(WALS, wal("y"), wal("x")), "two")
    assert registry.engine(EngineKind.WAL, "x") is first
    assert registry.names(EngineKind.WAL) == ["x"]


def test_a_plugin_that_returns_one_name_twice_is_refused() -> None:
    with pytest.raises(DuplicateEngine):
        Registry().register(offering(WALS, wal("x"), wal("x")))


def test_an_entry_point_that_does_not_bring_its_engine_is_refused() -> None:
    registry = Registry([Point("wal.x", lambda: offering(WALS, wal("y")))])
    with pytest.raises(PluginError, match=r"no wal engine 'x'.*wal\.y"):
        registry.engine(EngineKind.WAL, "x")


def test_a_misspelt_hook_is_refused_with_the_likely_one() -> None:
    with pytest.raises(PluginError, match="no hook stelae_wal_engine; did you mean stelae_wal_eng"):
        Registry().register(plugin(stelae_wal_engine=lambda: ()))


def test_a_plugin_without_hooks_is_refused() -> None:
    with pytest.raises(PluginError, match="plugin empty has no hooks"):
        Registry().register(ModuleType("empty"))


def test_a_forgotten_decorator_is_named() -> None:
    forgetful = SimpleNamespace(stelae_wal_engines=list)
    with pytest.raises(PluginError, match="stelae_wal_engines lack the decorator @hookimpl"):
        Registry().register(forgetful)


def test_a_coroutine_is_refused() -> None:
    async def engines() -> Sequence[Any]:
        return []

    with pytest.raises(PluginError, match="is a coroutine; hooks are synchronous"):
        Registry().register(plugin(stelae_wal_engines=engines))


def test_an_argument_with_a_default_is_refused() -> None:
    def changed(event: object = None) -> None:
        del event

    with pytest.raises(PluginError, match=r"argument event of .* has a default"):
        Registry().register(plugin(stelae_leader_changed=changed))


def test_an_argument_that_the_hook_does_not_have_is_refused_and_nothing_is_registered() -> None:
    def engines(directory: str) -> Sequence[Any]:
        del directory
        return [wal("x")]

    registry = Registry()
    with pytest.raises(PluginError):
        registry.register(plugin(stelae_wal_engines=engines))
    assert registry.names(EngineKind.WAL) == []


def _misnamed(evnt: object) -> None:
    del evnt


def _named_only(*, event: object) -> None:
    del event


@pytest.mark.parametrize(
    ("hook", "function", "words"),
    [
        ("stelae_leader_changed", _misnamed, "stelae_leader_changed would never get the argument evnt.*it gets event"),
        ("stelae_leader_changed", _named_only, "never get the argument event.*it gets event"),
        ("stelae_services", _misnamed, "stelae_services would never get the argument evnt.*it gets no arguments"),
        ("stelae_cli", _misnamed, "stelae_cli would never get the argument evnt.*it gets app"),
    ],
)
def test_an_argument_that_is_never_passed_is_named_with_those_that_are(hook: str, function: Any, words: str) -> None:
    """pluggy refused the plugin before it was registered. So taking it back failed, and no plugin was checked."""
    with pytest.raises(PluginError, match=words):
        Registry().register(plugin(**{hook: function}))


def test_a_hook_that_raises_is_named() -> None:
    with pytest.raises(PluginError, match="stelae_wal_engines raised ZeroDivisionError"):
        Registry().register(plugin(stelae_wal_engines=lambda: 1 // 0), "bad")


@dataclasses.dataclass
class Thawed:
    size: int = 1


@dataclasses.dataclass(frozen=True)
class NoDefault:
    size: int


@dataclasses.dataclass(frozen=True)
class OfAnotherType:
    folder: Path = Path("x")


@dataclasses.dataclass(frozen=True)
class OfNumbers:
    level: Literal[1, 2] = 1


@dataclasses.dataclass(frozen=True)
class OfUnknownType:
    size: "Unimported" = 1  # type: ignore[name-defined]  # noqa: F821, UP037


@dataclasses.dataclass(frozen=True)
class BadDefaults:
    low: int = 1

    def __post_init__(self) -> None:
        raise ValueError("low is too low")


def _another_plan(snapshot: Any, config: Any) -> tuple[()]:
    del snapshot, config
    return ()


async def _later(snapshot: Any, config: Any, rng: Any) -> tuple[()]:
    del snapshot, config, rng
    return ()


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ("segmented", "is not a subclass of stelae.spi.wal.WalEngine"),
        (int, "is not a subclass"),
        (policy("p"), "is not a subclass"),
        (wal("x", contract_version=2), "made for version 2 of the wal contract"),
        (wal("no good"), "not an identifier"),
        (wal(""), "not an identifier"),
        (wal("x", Config=None), "Config is not a dataclass"),
        (wal("x", Config=Thawed), "is not frozen"),
        (wal("x", Config=NoDefault), "has no default for size"),
        (wal("x", Config=OfAnotherType), "has folder of type Path; supported: bool, int, float, str and Literal"),
        (wal("x", Config=OfNumbers), r"has level of type .*Literal\[1, 2\]; supported: "),
        (wal("x", Config=OfUnknownType), "has a type that cannot be found: name 'Unimported' is not defined"),
        (wal("x", Config=BadDefaults), "refuses its own defaults: .*low is too low"),
        (wal("x", close=lambda self, how: None), r"whose close takes \(how\) and not \(\)"),
        (type("Half", (wal().__mro__[1],), {"name": "half"}), "does not implement close, collect"),
    ],
)
def test_an_engine_that_breaks_its_contract_is_refused(engine: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        Registry().register(offering(WALS, engine), "bad")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (staticmethod(_another_plan), r"whose plan takes \(snapshot, config\) and not \(snapshot, config, rng\), as"),
        (lambda self, snapshot, config, rng: (), r"whose plan takes \(self, snapshot, config, rng\) and not"),
        (staticmethod(_later), "whose plan is a coroutine; engines are synchronous"),
    ],
)
def test_an_engine_whose_method_cannot_be_called_is_refused_before_a_node_runs(plan: Any, message: str) -> None:
    """A master with such a policy ran, and logged a TypeError for each plan."""
    engine = type("Policy_p", (MasterPolicy,), {"name": "p", "plan": plan})
    with pytest.raises(PluginError, match=message):
        Registry().register(plugin(stelae_master_policies=lambda: [engine]), "bad")


def test_a_method_may_have_further_arguments_with_defaults_and_other_names() -> None:
    def plan(seen: Any, settings: Any, draws: Any, depth: int = 3) -> tuple[()]:
        del seen, settings, draws, depth
        return ()

    engine = type("Policy_p", (MasterPolicy,), {"name": "p", "plan": staticmethod(plan)})
    registry = Registry()
    registry.register(plugin(stelae_master_policies=lambda: [engine]))
    assert registry.engine(EngineKind.POLICY, "p") is engine


def test_engines_that_are_not_in_a_sequence_are_refused() -> None:
    with pytest.raises(PluginError, match="not a sequence"):
        Registry().register(plugin(stelae_wal_engines=lambda: wal("x")))


def _service_hook(name: str) -> Any:
    return lambda: [lambda _: name]


def test_services_are_collected_from_every_plugin() -> None:
    registry = Registry()
    for name in ("a", "b"):
        registry.register(plugin(stelae_services=_service_hook(name)), name)
    assert sorted(str(factory(None)) for factory in registry.services()) == ["a", "b"]


def test_commands_load_by_kind_and_broken_ones_are_reported() -> None:
    good = plugin(stelae_services=lambda: ())
    points = [Point("cli.good", lambda: good), Point("cli.bad", lambda: imports("gone")), Point("wal.other", never)]
    problems = Registry(points).load_kind("cli")
    assert [type(problem) for problem in problems] == [BrokenPlugin]


def test_an_observer_that_raises_does_not_keep_the_others_from_hearing(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[object] = []

    class Loud:
        @hookimpl
        def stelae_tablet_state_changed(self, event: TabletStateChanged) -> None:
            heard.append(event)

        @hookimpl
        def stelae_leader_changed(self, event: LeaderChanged) -> None:
            heard.append(event)

    class Broken:
        @hookimpl
        def stelae_tablet_state_changed(self, event: TabletStateChanged) -> None:
            raise RuntimeError("observer")

        @hookimpl
        def stelae_leader_changed(self) -> None:
            raise RuntimeError("observer")

    registry = Registry()
    for observer in (Loud(), Broken(), Loud()):
        registry.register(observer)
    state = TabletStateChanged(tablet_id=TabletId("t"), before="A", after="B")
    leader = LeaderChanged(tablet_id=TabletId("t"), term=1, leader=NodeId("a" * 32))
    with caplog.at_level(logging.ERROR):
        registry.tablet_state_changed(state)
        registry.leader_changed(leader)
    assert heard == [state, state, leader, leader]
    assert caplog.text.count("an observer raised") == 2


def test_a_command_plugin_that_raises_is_reported_and_the_others_still_add_theirs() -> None:
    added: list[Any] = []
    registry = Registry()
    registry.register(plugin(stelae_cli=lambda app: added.append(app)), "good")
    registry.register(plugin(stelae_cli=lambda app: 1 // 0), "bad")
    problems = registry.extend_cli("app")
    assert added == ["app"]
    assert "plugin bad: stelae_cli raised" in str(problems[0])


def test_fakes_alone_make_a_working_registry() -> None:
    registry = working()
    registry.check_names()
    assert registry.engine(EngineKind.WAL, "segmented").Config is WalConfig


def test_a_wheels_entry_point_is_found_in_a_fresh_interpreter(tmp_path: Path) -> None:
    """Real metadata, real import: what ``pip install`` of a third party's plugin leaves behind."""
    (tmp_path / "odd_plugin.py").write_text("raise RuntimeError('half installed')\n")
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stelae.plugins]\nwal.odd = odd_plugin\n")
    program = (
        "from stelae.config.registry import Registry\n"
        "from stelae.config.contracts import EngineKind\n"
        "registry = Registry.installed()\n"
        "assert 'odd' in registry.names(EngineKind.WAL)\n"
        "try:\n    registry.engine(EngineKind.WAL, 'odd')\n"
        "except Exception as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "odd 1.0 cannot be imported (RuntimeError: half installed)" in done.stdout
