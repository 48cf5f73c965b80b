"""The counters of a running node, from the metrics that it serves."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from stelae.local.node_process import NodeProcess
from stelae.spi.errors import Unavailable
from stelae.telemetry.target_file import read_target

SCRAPE_TIMEOUT_S = 10.0

_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # Ignores the proxy of the environment.


def node_counter(node: NodeProcess, name: str) -> int:
    """Return a counter of a running node, which began at 0 with its process. Blocks.

    Raises:
        Unavailable: the node does not answer.
    """
    address = read_target(str(node.directory / "data"))
    try:
        with _DIRECT.open(f"http://{address}/metrics", timeout=SCRAPE_TIMEOUT_S) as reply:
            text = reply.read().decode()
    except OSError as error:
        raise Unavailable(f"{node.name} does not serve its metrics: {error}") from error
    names = (f"stelae_{name}", f"stelae_{name}_total")
    lines = "\n".join(line for line in text.splitlines() if line.startswith(names))
    samples = (one for family in text_string_to_metric_families(lines) for one in family.samples)
    return int(sum(one.value for one in samples if one.name in names))
