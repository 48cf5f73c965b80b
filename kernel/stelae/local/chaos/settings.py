"""The section of ``node.toml`` that lets tests break a running node."""

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosSettings:
    """Section ``[chaos]``: for tests of faults, never for production."""

    clock_rules: str = setting("", reason="a file of rules that make this node's clock go wrong; empty: none")
    disk_rules: str = setting("", reason="a file of rules that make this node's disk fail or slow; empty: none")
    network_rules: str = setting("", reason="a file of rules that lose or delay messages of this node; empty: none")
