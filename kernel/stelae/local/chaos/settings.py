"""The section of ``node.toml`` that lets tests break a running node."""

from dataclasses import dataclass

from stelae.spi.settings import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosSettings:
    """Section ``[chaos]``: for tests of faults, never for production."""

    disk_rules: str = setting("", reason="a file of rules by which this node's disk fails; empty: it never does so")
    network_rules: str = setting(
        "", reason="a file of rules by which messages of this node are lost or late; empty: none is"
    )
