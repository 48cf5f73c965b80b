"""The registry of plugins: the names of all engines, and the class of an engine by its name.

There is no global registry; code that needs one gets it as an argument. Names are known from entry points without any
import, so a plugin that cannot be imported matters only when it is used. Tests register modules directly, without entry
points.

``pluggy`` checks and calls the hook functions. Engines are found by name; the order of registration does not matter."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from typing import Any

import pluggy

from stelae.config.contracts import CONTRACTS, EngineKind, check_engine
from stelae.config.plugin_service import PluginService
from stelae.config.plugins import check_hooks, installed_entry_points, is_installed, load_entry_point, origin
from stelae.config.settings_class import config_problem
from stelae.spi import hooks
from stelae.spi.errors import PluginError
from stelae.spi.extras import MissingExtra
from stelae.spi.hooks import LeaderChanged, ServiceFactory, TabletStateChanged

log = logging.getLogger(__name__)

SERVICE = "service"
"""The kind of plugins with services: the first half of an entry point's name, and of a section of ``node.toml``."""

KINDS = (*EngineKind, SERVICE, "cli")
"""What the name of an entry point begins with."""


class UnknownEngine(PluginError):
    """No plugin offers an engine of that name. ``known`` has the names of engines that can be used."""

    code = "UNKNOWN_ENGINE"

    def __init__(self, kind: EngineKind, name: str, known: list[str], broken: list[str]) -> None:
        self.known = known
        listed = ", ".join(known) if known else "none"
        text = f"there is no {kind} engine {name!r}; known {kind} engines: {listed}"
        if broken:
            text += f"; installed but broken: {', '.join(broken)}"
        super().__init__(text)


class DuplicateEngine(PluginError):
    """Two plugins offer an engine of the same kind and name, so neither can be chosen."""

    code = "DUPLICATE_ENGINE"


@dataclass(frozen=True, slots=True)
class Offer:
    """One engine name for lists, with its origin, without an import."""

    kind: str
    name: str
    origin: str
    value: str


class Registry:
    """The registered plugins. For use by one thread, while a process starts.

    Args:
        entry_points: the entry points of installed plugins.
    """

    def __init__(self, entry_points: Iterable[EntryPoint] = ()) -> None:
        self._manager = pluggy.PluginManager(hooks.PROJECT)
        self._manager.add_hookspecs(hooks)
        self._points: dict[str, list[EntryPoint]] = defaultdict(list)
        for point in entry_points:
            self._points[point.name].append(point)
        self._engines: dict[tuple[EngineKind, str], tuple[type[Any], str]] = {}
        self._names: dict[int, str] = {}
        """The names of registered plugins by the identity of the plugin. Several may have the same name."""
        self._loaded: set[int] = set()
        """The identities of the plugins that came from an entry point."""

    @classmethod
    def installed(cls) -> Registry:
        """Return a registry that knows every plugin installed in this environment."""
        return cls(installed_entry_points())

    def register(self, plugin: object, name: str = "") -> None:
        """Register a plugin: a module, or any object with hook functions. Registering it twice has no effect.

        Raises:
            PluginError: it has no hooks, one of them is misspelt, asynchronous or has default arguments, or one of
                its engines does not fulfil the contract.
            DuplicateEngine: another plugin has registered an engine of that kind and name.
        """
        if self._manager.is_registered(plugin):
            return
        name = name or str(getattr(plugin, "__name__", type(plugin).__name__))
        check_hooks(self._manager, plugin, name)
        engines = self._collect(plugin, name)
        try:
            # Without a name pluggy takes that of the object, which another plugin may have, too.
            self._manager.register(plugin, f"{name} at {id(plugin):#x}")
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            if self._manager.is_registered(plugin):
                self._manager.unregister(plugin)
            raise PluginError(f"plugin {name}: {error}") from error
        self._names[id(plugin)] = name
        for key, engine in engines.items():
            self._engines[key] = (engine, name)

    def names(self, kind: EngineKind) -> list[str]:
        """Return the names of all engines of a kind, sorted. Imports nothing."""
        return sorted({*self.announced(kind)} | {name for of, name in self._engines if of is kind})

    def announced(self, kind: str) -> list[str]:
        """Return the names that installed plugins announce for a kind, sorted. Imports nothing."""
        return sorted({point.partition(".")[2] for point in self._points if point.startswith(f"{kind}.")})

    def offers(self) -> list[Offer]:
        """Return every engine, installed or registered, sorted. Imports nothing."""
        found = set()
        for point in (point for points in self._points.values() for point in points):
            kind, _, name = point.name.partition(".")
            found.add(Offer(kind, name, origin(point), point.value))
        for (of, name), (engine, plugin) in self._engines.items():
            if f"{of}.{name}" not in self._points:
                found.add(Offer(of, name, plugin, f"{engine.__module__}:{engine.__qualname__}"))
        return sorted(found, key=lambda offer: (offer.kind, offer.name, offer.origin))

    def check_names(self) -> None:
        """Refuse an installation in which a name is not unique. Called when a node starts.

        Raises:
            DuplicateEngine: two distributions announce the same name; the message names both.
        """
        for name in sorted(self._points):
            self._refuse_duplicate(name)

    def engine(self, kind: EngineKind, name: str) -> type[Any]:
        """Return the engine class of that name. Imports its plugin if necessary.

        Raises:
            UnknownEngine: no plugin offers it; the message lists the known names and the broken plugins.
            DuplicateEngine: two plugins offer it.
            BrokenPlugin, MissingExtra: its plugin, or a package that it needs, cannot be imported.
            PluginError: its plugin does not fulfil the contract.
        """
        key = (kind, name)
        full_name = f"{kind}.{name}"
        self._refuse_duplicate(full_name)
        if key not in self._engines and full_name in self._points:
            self.load(full_name)
            if key not in self._engines:
                offered = [f"{of}.{other}" for of, other in self._engines] or ["nothing"]
                raise PluginError(
                    f"plugin {full_name} of {origin(self._points[full_name][0])} registers no "
                    f"{kind} engine {name!r}; registered so far: {', '.join(sorted(offered))}"
                )
        if key not in self._engines:
            raise self._unknown(kind, name)
        engine, _ = self._engines[key]
        for module, extra in getattr(engine, "optional_modules", {}).items():
            if not is_installed(module):
                raise MissingExtra(module, extra, wanted_by=f"{kind} engine {name!r}")
        return engine

    def load_kind(self, kind: str, only: str = "") -> list[PluginError]:
        """Load every plugin whose entry point begins with ``kind.``; return the errors.

        For the kind ``cli``, whose plugins are not named in ``node.toml``.

        Args:
            kind: the part of the entry point's name before the dot.
            only: load only the entry point of this name, if there is one.
        """
        problems: list[PluginError] = []
        for full_name in sorted(self._points):
            if full_name.startswith(f"{kind}.") and only in ("", full_name.partition(".")[2]):
                try:
                    self.load(full_name)
                except PluginError as error:
                    problems.append(error)
        return problems

    def load_service(self, name: str) -> tuple[object, type[Any] | None]:
        """Import and register the plugin ``service.NAME``. Return it, and its ``Config`` or ``None`` if it has none.

        Raises:
            PluginError: as :meth:`load`, or its ``Config`` cannot be used.
        """
        plugin = self.load(f"{SERVICE}.{name}")
        config = getattr(plugin, "Config", None)
        if config is not None and (problem := config_problem(config)):
            raise PluginError(f"plugin {SERVICE}.{name}: its Config {problem}")
        return plugin, config

    def load(self, full_name: str) -> object:
        """Import and register the plugin of an entry point, ``kind.name``, and return it.

        Raises:
            PluginError: as :meth:`engine` does.
        """
        self._refuse_duplicate(full_name)
        kind, _, name = full_name.partition(".")
        point = self._points[full_name if name else kind][0]
        if kind not in KINDS or not name:
            fact = f"entry point {point.name!r} of {origin(point)} is not loaded by any node or command"
            raise PluginError(f"{fact}: its name must be KIND.NAME, with one of the kinds {', '.join(KINDS)}")
        plugin = load_entry_point(point)
        self.register(plugin, full_name)
        self._loaded.add(id(plugin))
        return plugin

    def services(self) -> list[ServiceFactory]:
        """Return the factories of every registered service, in order of registration.

        Errors of a service whose plugin was installed name that plugin.

        Raises:
            PluginError: a hook raised.
        """
        found: list[ServiceFactory] = []
        for one in self._manager.hook.stelae_services.get_hookimpls():
            name = self._names[id(one.plugin)]
            factories = _call(one.function, "stelae_services", name)
            if id(one.plugin) in self._loaded:
                factories = [partial(PluginService, factory, name) for factory in factories]
            found += factories
        return found

    def extend_cli(self, app: Any) -> list[PluginError]:
        """Let every registered plugin add its commands to ``app``; return the errors."""
        return self._call_all("stelae_cli", app)

    def tablet_state_changed(self, event: TabletStateChanged) -> None:
        """Call the observers. If one raises, that is logged, and the others are still called."""
        for problem in self._call_all("stelae_tablet_state_changed", event):
            log.error("an observer raised: %s", problem, exc_info=problem.__cause__)

    def leader_changed(self, event: LeaderChanged) -> None:
        """Call the observers. If one raises, that is logged, and the others are still called."""
        for problem in self._call_all("stelae_leader_changed", event):
            log.error("an observer raised: %s", problem, exc_info=problem.__cause__)

    def _call_all(self, hook: str, *arguments: object) -> list[PluginError]:
        """Call every implementation of a hook, even if some raise; return the errors."""
        problems = []
        for one in getattr(self._manager.hook, hook).get_hookimpls():
            try:
                one.function(*arguments[: len(one.argnames)])
            except (Exception, SystemExit) as error:
                problem = PluginError(f"plugin {self._names[id(one.plugin)]}: {hook} raised {error!r}")
                problem.__cause__ = error
                problems.append(problem)
        return problems

    def _collect(self, plugin: object, plugin_name: str) -> dict[tuple[EngineKind, str], type[Any]]:
        """Call the registration hooks of one plugin; return its engines. Does not change the registry."""
        found: dict[tuple[EngineKind, str], type[Any]] = {}
        for kind, contract in CONTRACTS.items():
            if self._manager.parse_hookimpl_opts(plugin, contract.hook) is None:
                continue
            for candidate in _call(getattr(plugin, contract.hook), contract.hook, plugin_name):
                engine = check_engine(kind, candidate, plugin_name)
                key = (kind, engine.name)
                other = self._engines.get(key, (None, plugin_name))[1]
                if key in found or key in self._engines:
                    raise DuplicateEngine(
                        f"{kind} engine {engine.name!r} is registered by {other} and again by "
                        f"{plugin_name}; uninstall or rename one of them"
                    )
                found[key] = engine
        return found

    def _refuse_duplicate(self, full_name: str) -> None:
        points = self._points.get(full_name, [])
        if len(points) > 1:
            where = " and ".join(f"{origin(point)} ({point.value})" for point in points)
            raise DuplicateEngine(f"plugin {full_name} is announced by {where}; uninstall one of them")

    def _unknown(self, kind: EngineKind, name: str) -> UnknownEngine:
        """Return the error for an unknown name. It lists the names of the kind that load and those that do not."""
        known, broken = [], []
        for other in self.names(kind):
            try:
                self.engine(kind, other)
                known.append(other)
            except PluginError as error:
                broken.append(f"{other} ({error})")
        return UnknownEngine(kind, name, known, broken)


def _call(function: Callable[[], Any], hook: str, plugin: str) -> Sequence[Any]:
    try:
        answer = function()
    except (Exception, SystemExit) as error:
        raise PluginError(f"plugin {plugin}: {hook} raised {error!r}") from error
    if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
        raise PluginError(f"plugin {plugin}: {hook} returned {answer!r}, not a sequence")
    return answer
