"""Every metric that a node serves: its name, kind and meaning. The reference page is made of this table.

Names follow the conventions of Prometheus: base units (seconds, bytes), counters end in ``_total``, what a label tells
apart is one family. Inside a node figures have names of its own (``stelae.spi.services``), with their unit last: a
family says which of them it shows. Whatever a plugin counts under a name that is not here is served all the same, as
``stelae_other_events_total`` and ``stelae_other_figures``."""

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "stelae_"
"""How every name of ours begins."""

LABEL_VALUES_MAX = 64
"""Values of a label that a node or a peer makes up, such as an error's code; those that come later share ``other``."""


class MetricKind(StrEnum):
    """What a family is, in the words of Prometheus."""

    COUNTER = "counter"  #: Only rises while a process runs.
    GAUGE = "gauge"  #: Shows the present.
    HISTOGRAM = "histogram"  #: How many values were at most so large, and their sum.


@dataclass(frozen=True, slots=True)
class Family:
    """One metric.

    Attributes:
        name: without ``stelae_``, and without the ``_total`` of a counter.
        kind: see ``MetricKind``.
        meaning: what it says, and when to worry.
        source: the node's own name; with a label, what that name begins with; empty: worked out when it is asked for.
        label: what tells its samples apart, or several, separated by commas.
        scale: what the node's figure is multiplied by: 1e-6 where it counts microseconds.
        elapsed: the node's figure is a time of its monotonic clock, and the sample is how long ago that was.
        buckets: lowest and highest bound of a histogram, as powers of two of the node's figure.
        master: only masters have it.
    """

    name: str
    kind: MetricKind
    meaning: str
    source: str = ""
    label: str = ""
    scale: float = 1
    buckets: tuple[int, int] = (0, 0)
    master: bool = False
    elapsed: bool = False

    @property
    def full_name(self) -> str:
        """The name as it is served."""
        return PREFIX + self.name + ("_total" if self.kind is MetricKind.COUNTER else "")


def _counter(name: str, meaning: str, *, source: str = "", label: str = "", master: bool = False) -> Family:
    return Family(name, MetricKind.COUNTER, meaning, source or name, label, master=master)


def _gauge(
    name: str,
    meaning: str,
    *,
    source: str = "",
    label: str = "",
    scale: float = 1,
    master: bool = False,
    elapsed: bool = False,
) -> Family:
    return Family(name, MetricKind.GAUGE, meaning, source, label, scale, master=master, elapsed=elapsed)


def _duration(name: str, meaning: str, *, source: str) -> Family:
    return Family(f"{name}_seconds", MetricKind.HISTOGRAM, meaning, source, scale=1e-6, buckets=(5, 25))


_CLIENTS = (
    _counter("write_requests", "requests to write; each holds what a client sent of one tablet in one turn"),
    _counter("write_operations", "operations of these requests"),
    _counter("write_bytes", "bytes of these requests"),
    _counter(
        "write_requests_refused", "requests answered with an error, by its code", source="write_refused_", label="code"
    ),
    _duration("write_duration", "from a request's arrival to its answer: majority, sync and all", source="write_us"),
    _counter("scan_pages", "pages of scans that were served"),
    _counter("scan_rows", "rows on these pages"),
    _counter("scan_bytes", "bytes of these pages"),
    _counter("scan_pages_refused", "pages answered with an error, by its code", source="scan_refused_", label="code"),
    _duration("scan_page_duration", "from the request for a page to its answer", source="scan_us"),
)

_LOG = (
    _duration("log_commit_duration", "one group of the log: written and synced", source="log_commit_us"),
    Family("log_group_entries", MetricKind.HISTOGRAM, "entries of a group", "log_group_entries", buckets=(0, 13)),
    Family("log_group_bytes", MetricKind.HISTOGRAM, "bytes of a group's entries", "log_group_bytes", buckets=(7, 26)),
    _gauge(
        "log_fast",
        "1: the log is written by the fast preset, `[log] fast`; 0: plainly, by a thread of the node",
        source="log_fast",
    ),
    _gauge("log_queue_bytes", "bytes that wait for the log; at the limit writers are pushed back"),
    _gauge("log_queue_limit_bytes", "that limit: `queue_bytes_max` of `[log]`"),
)

_LOOP = (
    _duration(
        "loop_lag", "how late the event loop runs its timers; everything on a node waits so long", source="loop_lag_us"
    ),
    _gauge("loop_lag_max_seconds", "the largest since start", source="loop_lag_ms_max", scale=1e-3),
    _gauge("pool_tasks", "work that waits for a thread or has one, by pool", label="pool"),
)

_REPLICAS = (
    _gauge("replicas", "replicas on this node, by run state", label="state"),
    _gauge("replicas_leading", "replicas of this node that lead and serve"),
    _gauge("term_max", "highest term of any replica here: rises with every election"),
    _counter("elections_started", "terms in which a replica of this node stood for election"),
    _counter("elections_won", "elections that made a replica of this node leader"),
    _counter("leaderships_lost", "replicas of this node that led and do not lead any more"),
    _counter("leader_changes", "new leaders that replicas of this node learned of"),
    _counter("replicas_failed", "replicas that stopped at their last durable op id; the log has each reason"),
    _counter(
        "copies_needed", "peers that need entries which have been collected. Should stay 0 while copies are planned"
    ),
    _gauge("replication_lag_entries", "entries that the slowest peer lacks of a tablet led here; the largest of all"),
    _gauge("apply_lag_entries", "entries committed and not yet applied; the largest of all replicas"),
    _gauge("tablet_replication_lag_entries", "the same of one tablet that is led here", label="tablet"),
    _gauge("tablet_apply_lag_entries", "the same of one replica", label="tablet"),
    _gauge("tablet_term", "the term of one replica", label="tablet"),
    _gauge("tablet_memory_bytes", "rows of one replica that wait for a flush", label="tablet"),
    _gauge("tablets_unlisted", "replicas without figures of their own: more than `tablets_max` of `[metrics]`"),
)

_STORES = (
    _counter("rows_applied", "rows of entries that replicas of this node applied; a repeated operation counts again"),
    _counter("flushes", "flushes that became durable"),
    _counter("compactions", "compactions that became durable, piece by piece"),
    _gauge("store_memory_bytes", "rows of all replicas that wait for a flush"),
    _gauge("disk_free_bytes", "room on the disk of the node's directory"),
)

_MESSAGES = (
    _counter("consensus_messages_received", "consensus messages that reached a replica of this node"),
    _counter(
        "consensus_messages_dropped", "those that could not be sent: no link, or no credit. The protocol repeats them"
    ),
    _counter("consensus_messages_refused", "appends that arrived while the replica could not keep entries"),
    _counter(
        "wire_refused",
        "messages that arrived and were not accepted, by error code",
        source="wire_refused_",
        label="code",
    ),
    _counter(
        "wire_refused_by_peer",
        "what peers answered that they did not accept",
        source="wire_refused_by_peer_",
        label="code",
    ),
    _counter("wire_refusals_unsent", "refusals whose sender had gone"),
    _counter(
        "wire_messages_unsent", "messages dropped before sending: the peer is not connected or has no credit left"
    ),
    _counter("wire_answers_unawaited", "answers that came after their deadline or cancellation"),
    _counter("wire_requests_repeated", "requests that came again while the first was being served"),
    _counter("wire_requests_abandoned", "requests whose deadline passed, or whose sender left, before the answer"),
    _counter(
        "wire_handlers_failed", "errors inside a handler that nobody foresaw. Should stay 0; the log has the trace"
    ),
    _counter("wire_links_lost", "links to peers that were up and broke"),
    _counter("wire_links_failed", "attempts to reach a peer that failed"),
    _counter("wire_connections_lost", "incoming connections whose sender could not be answered any more"),
    _counter("wire_connections_overrun", "incoming connections dropped because too many answers piled up"),
    _counter("wire_faults_dropped", "messages that the fault seam dropped; 0 outside tests"),
)

_REPORTS = (
    _counter("heartbeats_sent", "heartbeats to masters"),
    _counter("heartbeats_failed", "those without an answer that could be used"),
    _counter(
        "reports_sent",
        "reports in these heartbeats: full ones, and what has changed",
        source="reports_sent_",
        label="extent",
    ),
)

_MASTERS = (
    _gauge(
        "master_leads", "1 on the master that leads and serves, 0 on the others", source="master_leads", master=True
    ),
    _gauge("master_tables", "tables in the catalog", source="master_tables", master=True),
    _gauge("master_tablets", "tablets in the catalog", source="master_tablets", master=True),
    _gauge("master_operations", "changes under way", source="master_operations", master=True),
    _gauge(
        "master_catalog_age_seconds",
        "how old this master's catalog may be; grows while no leader answers it; 0 before anything is applied",
        source="master_catalog_current_at_us",
        scale=1e-6,
        master=True,
        elapsed=True,
    ),
    _counter("master_heartbeats_received", "heartbeats of tablet servers", master=True),
    _counter(
        "master_reports_received", "reports in them, by extent", source="master_reports_", label="extent", master=True
    ),
    _counter("master_changes_asked", "changes of tables that clients asked for; a retry counts again", master=True),
    _counter("master_actions_sent", "actions asked of tablet servers, repeats included", master=True),
    _counter("master_actions_refused", "actions that were not taken, or not answered", master=True),
)

_SELF = (
    _gauge("node_info", "1; its labels say who this is", label="node,cluster,role,version"),
    _counter("logging_lines", "lines of the node's log, by level", source="logging_lines_", label="level"),
    _counter("logging_lines_suppressed", "lines left out because equal ones had just been written"),
    _counter("metrics_scrapes", "scrapes for which the figures were collected and sent"),
    _counter("metrics_scrapes_failed", "scrapes turned away or cut off: too many at once, too slow, or not HTTP"),
    Family("other_events", MetricKind.COUNTER, "what plugins count under names of their own", label="name"),
    _gauge("other_figures", "the gauges of plugins", label="name"),
)

SECTIONS: dict[str, tuple[Family, ...]] = {
    "What clients ask for": _CLIENTS,
    "The log": _LOG,
    "The event loop": _LOOP,
    "Replicas": _REPLICAS,
    "Stores": _STORES,
    "Messages": _MESSAGES,
    "Reports to masters": _REPORTS,
    "Masters": _MASTERS,
    "The node itself": _SELF,
}
"""Every family, in the order of the reference page."""

FAMILIES: tuple[Family, ...] = tuple(family for section in SECTIONS.values() for family in section)

UNSHOWN = frozenset({"wire_refused_total", "loop_lag_ms"})
"""Figures of a node that a family shows in another way: as the sum of its labels, or as a histogram."""

_PLAIN = {family.source: family for family in FAMILIES if family.source and not family.label}
_LABELLED = sorted((f for f in FAMILIES if f.source and f.label), key=lambda family: -len(family.source))


def family_of(name: str) -> Family | None:
    """Return what shows a figure that the node knows as ``name``; ``None``: nothing of its own does."""
    found = _PLAIN.get(name)
    if found is not None or name in UNSHOWN:
        return found
    return next((family for family in _LABELLED if name.startswith(family.source)), None)
