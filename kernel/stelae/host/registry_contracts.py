"""What the kernel demands of an engine class, per kind of engine."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from enum import StrEnum
from typing import Any

from stelae.spi.errors import PluginError


class EngineKind(StrEnum):
    """The five kinds; the value is the first half of an entry point's name."""

    WAL = "wal"
    CONSENSUS = "consensus"
    STORE = "store"
    COPY = "copy"
    POLICY = "policy"


@dataclasses.dataclass(frozen=True, slots=True)
class Contract:
    """Where a kind's contract stands, and the hook that registers engines of it.

    The base class is named, not imported: a command that lists names must not pay for contracts.
    """

    hook: str
    module: str
    base: str
    version: str


CONTRACTS: dict[EngineKind, Contract] = {
    EngineKind.WAL: Contract(
        "stelae_wal_engines", "stelae.spi.wal", "WalEngine", "WAL_CONTRACT_VERSION"
    ),
    EngineKind.CONSENSUS: Contract(
        "stelae_consensus_engines",
        "stelae.spi.consensus",
        "ConsensusEngine",
        "CONSENSUS_CONTRACT_VERSION",
    ),
    EngineKind.STORE: Contract(
        "stelae_store_engines", "stelae.spi.store", "TabletStore", "STORE_CONTRACT_VERSION"
    ),
    EngineKind.COPY: Contract(
        "stelae_copy_transports", "stelae.spi.copy", "CopyTransport", "COPY_CONTRACT_VERSION"
    ),
    EngineKind.POLICY: Contract(
        "stelae_master_policies", "stelae.spi.policy", "MasterPolicy", "POLICY_CONTRACT_VERSION"
    ),
}


def check_engine(kind: EngineKind, candidate: object, plugin: str) -> type[Any]:
    """Return ``candidate`` as an engine class of ``kind``.

    Raises:
        PluginError: it is not a class, not of the contract, not complete, of another version of
            the contract, or its name or ``Config`` cannot be used.
    """
    contract = CONTRACTS[kind]
    module = importlib.import_module(contract.module)
    base, version = getattr(module, contract.base), getattr(module, contract.version)
    who = f"plugin {plugin}: {contract.hook} returned {candidate!r}"
    if not isinstance(candidate, type) or not issubclass(candidate, base):
        raise PluginError(f"{who}, which is no subclass of {contract.module}.{contract.base}")
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
    problem = _config_problem(getattr(engine, "Config", None))
    if problem:
        raise PluginError(f"{who}, whose Config {problem}")
    return engine


def _config_problem(config: object) -> str | None:
    if not isinstance(config, type) or not dataclasses.is_dataclass(config):
        return "is not a dataclass"
    if not inspect.signature(config).parameters:
        return None
    params = getattr(config, "__dataclass_params__", None)
    if not getattr(params, "frozen", False):
        return "is not frozen"
    for field in dataclasses.fields(config):
        no_factory = field.default_factory is dataclasses.MISSING
        if field.default is dataclasses.MISSING and no_factory:
            return f"has no default for {field.name}"
    return None
