"""Imports one plugin and checks its hooks."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import inspect
import re
import traceback
from collections.abc import Callable
from importlib.metadata import Distribution, EntryPoint
from typing import Any

import pluggy

from stelae.spi import hooks
from stelae.spi.errors import PluginError
from stelae.spi.extras import MissingExtra


class BrokenPlugin(PluginError):
    """A plugin is installed and cannot be imported."""

    code = "BROKEN_PLUGIN"


def installed_entry_points() -> list[EntryPoint]:
    """Return the entry points that installed distributions announce, without importing any."""
    return list(importlib.metadata.entry_points(group=hooks.ENTRY_POINT_GROUP))


def origin(point: EntryPoint) -> str:
    """Return the distribution and version that an entry point comes from."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"


def load_entry_point(point: EntryPoint) -> object:
    """Import the object that an entry point names.

    Raises:
        MissingExtra: a package of one of the distribution's extras is not installed.
        BrokenPlugin: the import raised anything else.
    """
    try:
        return point.load()
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        extra = _extra_of(point.dist, missing)
        if extra is not None:
            raise MissingExtra(missing, extra, wanted_by=f"plugin {point.name}") from error
        raise _broken(point, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(point, error) from error


def is_installed(module: str) -> bool:
    """Return whether a module can be found, without importing it. The packages around it are imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # A package around it is missing.
        return False


def check_hooks(manager: pluggy.PluginManager, plugin: object, plugin_name: str) -> None:
    """Refuse a plugin whose hooks would never be called, or not with the arguments that they have.

    Raises:
        PluginError: the plugin has no hook, or one of its hooks is misspelt, is a coroutine, or has arguments that
            are never passed: unknown ones, and those with defaults.
    """
    known = [name for name, hook in vars(hooks).items() if hasattr(hook, f"{hooks.PROJECT}_spec")]
    found = [name for name in dir(plugin) if manager.parse_hookimpl_opts(plugin, name) is not None]
    if not found:
        unmarked = [name for name in dir(plugin) if name.startswith(f"{hooks.PROJECT}_")]
        seen = f"; {', '.join(unmarked)} lack the decorator @hookimpl" if unmarked else ""
        raise PluginError(f"plugin {plugin_name} has no hooks{seen}")
    for name in found:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"; did you mean {close[0]}?" if close else "."
            raise PluginError(f"plugin {plugin_name}: there is no hook {name}{guess} Known: {', '.join(known)}")
        _check_function(plugin_name, name, getattr(plugin, name))


def _check_function(plugin_name: str, name: str, function: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise PluginError(f"plugin {plugin_name}: {name} is a coroutine; hooks are synchronous")
    passed = inspect.signature(getattr(hooks, name)).parameters
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name not in passed or parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            known = f"it gets {', '.join(passed)}" if passed else "it gets no arguments"
            raise PluginError(f"plugin {plugin_name}: {name} would never get the argument {parameter}; {known}")
        if parameter.default is not inspect.Parameter.empty:
            raise PluginError(
                f"plugin {plugin_name}: argument {parameter.name} of {name} has a default and would "
                "never be passed; remove the default"
            )


def _broken(point: EntryPoint, error: BaseException) -> BrokenPlugin:
    calls = traceback.extract_tb(error.__traceback__)
    place = f" at {calls[-1].filename}:{calls[-1].lineno}" if calls and calls[-1].filename[:1] != "<" else ""
    return BrokenPlugin(
        f"plugin {point.name} of {origin(point)} cannot be imported "
        f"({type(error).__name__}: {error}){place}; reinstall or upgrade that distribution"
    )


def _extra_of(dist: Distribution | None, module: str) -> str | None:
    """Return the extra of ``dist`` whose requirement has the name of ``module``, if any."""
    for requirement in (dist.requires if dist else None) or []:
        marker = re.search(r"""extra\s*==\s*['"]([^'"]+)['"]""", requirement)
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if marker and name and _normal(name[0]) == _normal(module):
            return marker[1]
    return None


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
