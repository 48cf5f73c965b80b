"""Carries out ``stelae metrics``."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from stelae.cli.kit.errors import EXIT_FAILED, EXIT_OK
from stelae.cli.kit.output import note, print_json
from stelae.cli.kit.terminal_layout import fitted
from stelae.local.cluster_with_masters import ClusterWithMasters
from stelae.spi.errors import CallerError
from stelae.telemetry.http_server import PATH
from stelae.telemetry.target_file import read_target
from stelae.wire.addresses import split_address

TIMEOUT_S = 5.0
BODY_BYTES_MAX = 64 << 20
"""Most bytes that are read from a node: enough for the metrics of ten thousand tablets."""

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # Ignores the proxy of the environment.


@dataclass(slots=True)
class _Node:
    """One node and its metrics."""

    name: str
    address: str | None
    figures: Mapping[str, float] = field(default_factory=dict)
    problem: str | None = None


def run_metrics(addresses: list[str], directory: Path | None, match: str, *, everything: bool, as_json: bool) -> int:
    """Ask every node for its metrics, print them, and return the exit code."""
    nodes = [_Node(address, address) for address in addresses]
    for address in addresses:
        split_address(address)
    if directory is not None:
        cluster = ClusterWithMasters.open(directory)
        nodes += [_Node(node.name, read_target(str(node.directory / "data"))) for node in cluster.nodes]
    if not nodes:
        raise CallerError("no node given; pass metrics addresses HOST:PORT, or --dir DIR for a local cluster")
    for node in nodes:
        _ask(node, match)
    if as_json:
        print_json({"nodes": nodes})
    else:
        names = list(dict.fromkeys(name for node in nodes for name in node.figures))
        rows = [[name, *(node.figures.get(name) for node in nodes)] for name in names]
        shown = [[row[0], *map(_shown, row[1:])] for row in rows if everything or any(row[1:])]
        # Not wrapped, because a broken name could not be found with grep.
        headers = ["METRIC", *(node.name.upper() for node in nodes)]
        print("\n".join(fitted(headers, shown, sys.maxsize)))
        if not shown and any(node.problem is None for node in nodes):
            note(_why_empty(match, zeros_count=len(rows)))
    for node in nodes:
        if node.problem is not None:
            note(f"cannot read the metrics of {node.name}: {node.problem}")
    return EXIT_FAILED if any(node.problem is not None for node in nodes) else EXIT_OK


def _why_empty(match: str, *, zeros_count: int) -> str:
    """Return why the table is empty. ``zeros_count``: the metrics that match and are zero on every node."""
    if zeros_count:
        return f"the metrics that match {match!r} are zero on every node ({zeros_count}); --all shows them"
    return f"no metric has {match!r} in its name; without --match every metric of Stelae is shown"


def _ask(node: _Node, match: str) -> None:
    if node.address is None:
        node.problem = "it is not running, or it serves no metrics"
        return
    try:
        with _DIRECT.open(f"http://{node.address}{PATH}", timeout=TIMEOUT_S) as reply:
            text = reply.read(BODY_BYTES_MAX).decode()
        figures = figures_of(text_string_to_metric_families(text))
        node.figures = {name: value for name, value in figures.items() if _matches(name, match)}
    except (OSError, ValueError) as error:
        node.problem = str(error)
    except HTTPException as error:  # The text alone may be a line of binary data.
        node.problem = f"this is not the answer of a metrics server: {error!r}"
    except LookupError as error:
        node.problem = f"the metrics lack a label: {error}"


def _matches(name: str, match: str) -> bool:
    """Return whether a shown name contains the text of ``--match``. Labels count only if the text has labels."""
    return match in (name if "{" in match else name.partition("{")[0])


def figures_of(families: Iterable[Metric]) -> dict[str, float]:
    """Return the values by name and labels. A histogram has four values."""
    found: dict[str, float] = {}
    for family in families:
        if family.type == "histogram":
            found |= _summary(family)
            continue
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def _summary(family: Metric) -> dict[str, float]:
    """Return the count and mean of a histogram, and upper bounds of its median and 99th percentile."""
    values = {sample.name.removeprefix(family.name): sample.value for sample in family.samples}
    buckets = [(float(s.labels["le"]), s.value) for s in family.samples if s.name.endswith("_bucket")]
    count = values.get("_count", 0.0)
    found = {f"{family.name} count": count, f"{family.name} mean": values.get("_sum", 0.0) / count if count else 0.0}
    for name, share in (("p50 <=", 0.5), ("p99 <=", 0.99)):
        bounds = [bound for bound, below in buckets if below >= share * count]
        found[f"{family.name} {name}"] = min(bounds) if count and bounds else 0.0
    return found


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"
