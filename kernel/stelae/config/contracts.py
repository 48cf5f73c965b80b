"""The checks of engine classes, for each kind of engine."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from stelae.config.settings_class import config_problem
from stelae.spi.errors import PluginError


class EngineKind(StrEnum):
    """The five kinds of engines. The value is the first half of an entry point's name."""

    WAL = "wal"
    CONSENSUS = "consensus"
    STORE = "store"
    COPY = "copy"
    POLICY = "policy"


@dataclasses.dataclass(frozen=True, slots=True)
class Contract:
    """The contract of a kind: the hook that registers its engines, and the name of their base class in ``stelae.spi``.

    The base class is named and not imported, so that commands that only list names do not import the contracts.
    """

    hook: str
    base: str


CONTRACTS: dict[EngineKind, Contract] = {
    EngineKind.WAL: Contract("stelae_wal_engines", "WalEngine"),
    EngineKind.CONSENSUS: Contract("stelae_consensus_engines", "ConsensusEngine"),
    EngineKind.STORE: Contract("stelae_store_engines", "TabletStore"),
    EngineKind.COPY: Contract("stelae_copy_transports", "CopyTransport"),
    EngineKind.POLICY: Contract("stelae_master_policies", "MasterPolicy"),
}


def check_engine(kind: EngineKind, candidate: object, plugin: str) -> type[Any]:
    """Return ``candidate`` as an engine class of ``kind``.

    Raises:
        PluginError: it is not a subclass of the contract's base class, it lacks methods, or has them with other
            arguments, it is made for another version of the contract, or its name or ``Config`` cannot be used.
    """
    contract = CONTRACTS[kind]
    module = importlib.import_module(f"stelae.spi.{kind}")
    base = getattr(module, contract.base)
    version = getattr(module, f"{kind.upper()}_CONTRACT_VERSION")
    who = f"plugin {plugin}: {contract.hook} returned {candidate!r}"
    if not isinstance(candidate, type) or not issubclass(candidate, base):
        raise PluginError(f"{who}, which is not a subclass of {module.__name__}.{contract.base}")
    engine: type[Any] = candidate
    found = getattr(engine, "contract_version", None)
    if found != version:
        raise PluginError(
            f"{who}, made for version {found} of the {kind} contract; this release has version "
            f"{version}: install a matching release of the plugin"
        )
    missing = sorted(getattr(engine, "__abstractmethods__", ()))
    if missing:
        raise PluginError(f"{who}, which does not implement {', '.join(missing)}")
    for method in sorted(name for of in base.__mro__[:-1] for name in vars(of) if not name.startswith("_")):
        problem = _method_problem(base, engine, method)
        if problem:
            raise PluginError(f"{who}, whose {method} {problem}, as {module.__name__}.{contract.base} says")
    name = getattr(engine, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise PluginError(f"{who}, whose class variable 'name' is {name!r}, not an identifier")
    problem = config_problem(getattr(engine, "Config", None))
    if problem:
        raise PluginError(f"{who}, whose Config {problem}")
    return engine


def _method_problem(base: type[Any], engine: type[Any], name: str) -> str | None:
    """Return why the kernel cannot call a method of an engine as the contract says; ``None`` if it can."""
    declared, found = inspect.getattr_static(base, name), inspect.getattr_static(engine, name)
    on_class = isinstance(declared, classmethod | staticmethod)
    if not on_class and not inspect.isfunction(declared):
        return None
    function = getattr(engine, name)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is a coroutine; engines are synchronous"
    wanted = _signature(getattr(base, name), drop_self=not on_class)
    given = _signature(function, drop_self=not on_class and inspect.isfunction(found))
    if given is None or wanted is None or (_accepts(given, wanted, True) and _accepts(given, wanted, False)):
        return None
    return f"takes {_arguments(given)} and not {_arguments(wanted)}"


def _signature(function: Callable[..., Any], *, drop_self: bool) -> inspect.Signature | None:
    """Return the arguments with which a method is called; ``None`` if Python cannot tell, as of compiled code."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    own = list(found.parameters.values())
    variable = own and own[0].kind is inspect.Parameter.VAR_POSITIONAL
    return found.replace(parameters=own[1:]) if drop_self and not variable else found


def _accepts(given: inspect.Signature, wanted: inspect.Signature, with_optional: bool) -> bool:
    """Return whether a function with the first signature can be called as the second one says."""
    passed = [p for p in wanted.parameters.values() if with_optional or p.default is inspect.Parameter.empty]
    named = {p.name: None for p in passed if p.kind is inspect.Parameter.KEYWORD_ONLY}
    try:
        given.bind(*[None] * (len(passed) - len(named)), **named)
    except TypeError:
        return False
    return True


def _arguments(signature: inspect.Signature) -> str:
    """Return a signature without its types."""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
