"""The checks of engine classes, for each kind of engine."""

from __future__ import annotations

import dataclasses
import importlib
from enum import StrEnum
from typing import Any

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
        PluginError: it is not a subclass of the contract's base class, it lacks methods, it is made for another version
            of the contract, or its name or ``Config`` cannot be used.
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
    name = getattr(engine, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise PluginError(f"{who}, whose class variable 'name' is {name!r}, not an identifier")
    problem = config_problem(getattr(engine, "Config", None))
    if problem:
        raise PluginError(f"{who}, whose Config {problem}")
    return engine


def config_problem(config: object) -> str | None:
    """Return why a class cannot be the settings of a plugin; ``None`` if it can."""
    if not isinstance(config, type) or not dataclasses.is_dataclass(config):
        return "is not a dataclass"
    dataclass: Any = config
    if not dataclass.__dataclass_params__.frozen:
        return "is not frozen"
    required = [f.name for f in dataclasses.fields(config) if f.default is dataclasses.MISSING]
    return f"has no default for {required[0]}" if required else None
