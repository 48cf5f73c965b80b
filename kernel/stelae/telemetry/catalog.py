"""Every metric that a node serves: its name, kind and meaning. The reference page is generated from this table.

Names follow the conventions of Prometheus: base units (seconds, bytes), counters end in ``_total``, and samples that
differ only in a label are one family. Inside a node metrics have other names (``stelae.spi.services``), with the unit
last; a family names the one that it shows. What a plugin counts under a name that is not in this table is served as
``stelae_other_events_total`` and ``stelae_other_figures``."""

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "stelae_"
"""The prefix of every name in this table."""

LABEL_VALUES_MAX = 64
"""The most values of a label that a node or a peer sends, such as an error code. Later ones share ``other``."""


class MetricKind(StrEnum):
    """The kind of a family, as Prometheus defines it."""

    COUNTER = "counter"  #: A number that only rises while the process runs.
    GAUGE = "gauge"  #: A current value.
    HISTOGRAM = "histogram"  #: How many values were at most as large as each bound, and the sum of all.


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family.

    Attributes:
        name: without ``stelae_``, and without the ``_total`` of a counter.
        kind: see ``MetricKind``.
        meaning: what it measures, and which values need attention.
        source: the name inside the node; with a label, the prefix of that name. Empty: computed at each scrape.
        label: the name of its label, or several names, separated by commas.
        scale: the factor from the value inside the node to the sample: 1e-6 from microseconds.
        elapsed: the value inside the node is a time of its monotonic clock, and the sample is the time since then.
        buckets: lowest and highest bound of a histogram, as powers of two of the value inside the node.
        master: only masters serve it.
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
        """The name that is served."""
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
    _duration(
        "write_duration", "from a request's arrival to its answer, syncs of a majority included", source="write_us"
    ),
    _counter("scan_pages", "pages of scans that were served"),
    _counter("scan_rows", "rows on these pages"),
    _counter("scan_bytes", "bytes of these pages"),
    _counter("scan_pages_refused", "pages answered with an error, by its code", source="scan_refused_", label="code"),
    _duration("scan_page_duration", "from the request for a page to its answer", source="scan_us"),
    _counter("lookup_requests", "requests for rows by key, each with the keys of one turn of a client"),
    _counter("lookup_keys", "keys in these requests"),
    _counter(
        "lookup_requests_refused",
        "of these requests, those answered with an error, by its code",
        source="lookup_refused_",
        label="code",
    ),
    _duration("lookup_duration", "from a request for rows by key to its answer", source="lookup_us"),
)

_LOG = (
    _duration("log_commit_duration", "one group of the log: written and synced", source="log_commit_us"),
    Family("log_group_entries", MetricKind.HISTOGRAM, "entries of a group", "log_group_entries", buckets=(0, 13)),
    Family("log_group_bytes", MetricKind.HISTOGRAM, "bytes of a group's entries", "log_group_bytes", buckets=(7, 26)),
    _gauge(
        "log_fast",
        "1: the fast preset, `[log] fast`, writes the log; 0: a thread of the node writes it",
        source="log_fast",
    ),
    _gauge("log_queue_bytes", "bytes that wait for the log; at the limit writes are throttled"),
    _gauge("log_queue_limit_bytes", "the limit of `log_queue_bytes`: `queue_bytes_max` of `[log]`"),
)

_LOOP = (
    _duration(
        "loop_lag",
        "how late the event loop runs its timers; everything on the node waits as long",
        source="loop_lag_us",
    ),
    _gauge("loop_lag_max_seconds", "the largest loop lag since the start", source="loop_lag_ms_max", scale=1e-3),
    _gauge("pool_tasks", "tasks that wait or run, by thread pool", label="pool"),
)

_REPLICAS = (
    _gauge("replicas", "replicas on this node, by run state", label="state"),
    _gauge("replicas_leading", "replicas of this node that lead and serve"),
    _gauge("term_max", "the highest term of any replica here; it rises with every election"),
    _counter("elections_started", "terms in which a replica of this node was a candidate"),
    _counter("elections_won", "elections that made a replica of this node leader"),
    _counter("leaderships_lost", "times that a replica of this node stopped leading"),
    _counter("leader_changes", "times that a replica of this node learned of a new leader"),
    _counter(
        "replicas_failed", "replicas that failed and stopped at their last durable op id; the log has each reason"
    ),
    _counter("copies_needed", "peers for which this leader requested a copy, counted once for each reason"),
    _gauge(
        "replication_lag_entries",
        "entries that the slowest peer of a tablet led here lacks; the largest of all tablets",
    ),
    _gauge("apply_lag_entries", "entries committed and not yet applied; the largest of all replicas"),
    _gauge("tablet_replication_lag_entries", "replication lag of one tablet that is led here", label="tablet"),
    _gauge("tablet_apply_lag_entries", "apply lag of one replica", label="tablet"),
    _gauge("tablet_term", "term of one replica", label="tablet"),
    _gauge("tablet_memory_bytes", "memory of one replica's rows that wait for a flush", label="tablet"),
    _gauge(
        "tablets_unlisted",
        "replicas without metrics of their own, because there are more than `tablets_max` of `[metrics]`",
    ),
)

_COPIES = (
    _counter("copy_bytes_fetched", "bytes of chunks that copies to this node have received"),
    _counter("copy_bytes_sent", "bytes of chunks that this node has sent to copies"),
    _gauge("copy_sessions", "snapshots that this node keeps open for copies from it", source="copy_sessions"),
    _counter("copy_sessions_expired", "sessions whose target was silent for `session_ttl_ms`"),
    _counter("copies_completed", "copies to this node whose replica is READY"),
    _counter("copies_abandoned", "copies to this node that began and did not end; the log has each reason"),
    _counter("copies_refused", "copies that leaders asked for and this node did not begin; the log has each reason"),
)

_STORES = (
    _counter("rows_applied", "rows of entries that replicas of this node applied; a repeated operation counts again"),
    _counter("flushes", "flushes that became durable"),
    _counter("compactions", "steps of compactions that became durable"),
    _gauge("store_memory_bytes", "memory of all replicas' rows that wait for a flush"),
    _gauge("disk_free_bytes", "free space on the disk of the node's directory"),
)

_MESSAGES = (
    _counter("consensus_messages_received", "consensus messages that reached a replica of this node"),
    _counter(
        "consensus_messages_dropped",
        "consensus messages that could not be sent: no link, or no credit. The protocol repeats them",
    ),
    _counter("consensus_messages_refused", "appends that arrived while the replica could not keep entries"),
    _counter(
        "consensus_messages_flawed",
        "consensus messages without effect: no correct member sends them, or not in that state; by what is wrong",
        source="consensus_flaw_",
        label="flaw",
    ),
    _counter(
        "wire_refused",
        "messages that arrived and were not accepted, by error code",
        source="wire_refused_",
        label="code",
    ),
    _counter(
        "wire_refused_by_peer",
        "messages that peers did not accept, by error code",
        source="wire_refused_by_peer_",
        label="code",
    ),
    _counter(
        "wire_refusals_unsent", "refusals that could not be sent, because the sender of the message had disconnected"
    ),
    _counter(
        "wire_messages_unsent", "messages dropped before sending: the peer is not connected or has no credit left"
    ),
    _counter("wire_answers_unawaited", "answers that came after their deadline or cancellation"),
    _counter("wire_requests_repeated", "requests that came again while the first was being served"),
    _counter("wire_requests_abandoned", "requests whose deadline passed, or whose sender left, before the answer"),
    _counter("wire_handlers_failed", "unexpected errors in a handler. Should stay 0; the log has the trace"),
    _counter("wire_links_lost", "links to peers that were up and broke"),
    _counter("wire_links_failed", "attempts to reach a peer that failed"),
    _counter("wire_connections_lost", "incoming connections whose sender could not be answered any more"),
    _counter("wire_connections_overrun", "incoming connections dropped because too many answers piled up"),
    _counter("wire_faults_dropped", "messages that the fault seam dropped; 0 outside tests"),
)

_REPORTS = (
    _counter("heartbeats_sent", "heartbeats to masters"),
    _counter("heartbeats_failed", "heartbeats without a usable answer"),
    _counter(
        "reports_sent",
        "reports in these heartbeats, by extent: full ones and changes",
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
        "how old this master's catalog may be. Grows while no leader answers it; 0 before anything is applied",
        source="master_catalog_current_at_us",
        scale=1e-6,
        master=True,
        elapsed=True,
    ),
    _counter("master_heartbeats_received", "heartbeats of tablet servers", master=True),
    _counter(
        "master_reports_received",
        "reports in these heartbeats, by extent",
        source="master_reports_",
        label="extent",
        master=True,
    ),
    _counter("master_changes_asked", "changes of tables that clients requested; a retry counts again", master=True),
    _counter("master_actions_sent", "actions sent to tablet servers, repeats included", master=True),
    _counter("master_actions_refused", "actions that tablet servers refused or did not answer", master=True),
)

_SELF = (
    _gauge("node_info", "always 1; the labels identify the node", label="node,cluster,role,version"),
    _counter("logging_lines", "lines of the node's log, by level", source="logging_lines_", label="level"),
    _counter("logging_lines_suppressed", "lines left out because of the limits of `[logging]`"),
    _counter("metrics_scrapes", "scrapes that were answered with metrics"),
    _counter("metrics_scrapes_failed", "scrapes that were refused or cut off: too many at once, too slow, or not HTTP"),
    Family("other_events", MetricKind.COUNTER, "counters of plugins, by their own name", label="name"),
    _gauge("other_figures", "gauges of plugins, by their own name", label="name"),
)

SECTIONS: dict[str, tuple[Family, ...]] = {
    "Requests of clients": _CLIENTS,
    "The log": _LOG,
    "The event loop": _LOOP,
    "Replicas": _REPLICAS,
    "Copies of tablets": _COPIES,
    "Stores": _STORES,
    "Messages": _MESSAGES,
    "Reports to masters": _REPORTS,
    "Masters": _MASTERS,
    "The node itself": _SELF,
}
"""Every family, in the order of the reference page."""

FAMILIES: tuple[Family, ...] = tuple(family for section in SECTIONS.values() for family in section)

WITHOUT_FAMILY = frozenset({"wire_refused_total", "loop_lag_ms"})
"""Metrics inside a node that a family shows in another way: as the sum of its labels, or as a histogram."""

_PLAIN = {family.source: family for family in FAMILIES if family.source and not family.label}
_LABELLED = sorted((f for f in FAMILIES if f.source and f.label), key=lambda family: -len(family.source))


def family_of(name: str) -> Family | None:
    """Return the family of a metric with this name inside the node; ``None`` if there is none."""
    found = _PLAIN.get(name)
    if found is not None or name in WITHOUT_FAMILY:
        return found
    return next((family for family in _LABELLED if name.startswith(family.source)), None)
