"""The ids of nodes, clusters, tablets, clients and logs, and positions in a log.

An id may arrive from a peer or become part of a path. So each kind has a fixed alphabet and one validator. This module
is pure."""

import re
from typing import NamedTuple, NewType

from stelae.spi.errors import BadIdentifier

#: The permanent id of a node: 32 lower-case hexadecimal digits, drawn once at format.
NodeId = NewType("NodeId", str)
#: The id of the cluster to which a node belongs. It is written once, at format or at the first join.
ClusterId = NewType("ClusterId", str)
#: The id of one run of a process: 16 lower-case hexadecimal digits, new at each start.
IncarnationId = NewType("IncarnationId", str)
#: The id of a tablet. It becomes a file name, so its alphabet is narrow.
TabletId = NewType("TabletId", str)
#: The id of a source of writes, given by its user: a job, a query, a script. It is printed, and never part of a path.
SourceId = NewType("SourceId", str)
#: The id of one client session. The client numbers its writes under it.
ClientId = NewType("ClientId", str)

ID_LENGTH_MAX = 64  #: Characters of a cluster, tablet or client id. A file name can hold it and a suffix.
SOURCE_LENGTH_MAX = 200  #: Characters of a source id.

_NODE_ID = re.compile(r"[0-9a-f]{32}")
_INCARNATION_ID = re.compile(r"[0-9a-f]{16}")
_PATH_SAFE = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{ID_LENGTH_MAX - 1}}}")
_PATH_SAFE_TEXT = f"1 to {ID_LENGTH_MAX} of the characters A-Z a-z 0-9 _ -, starting with a letter or a digit"


class OpId(NamedTuple):
    """The position of an entry in a log: its term and its index, which begins at 1.

    Op ids are ordered by term, then by index. Neither is negative; both may exceed 2**32."""

    term: int
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.term}.{self.index}"


ZERO = OpId(0, 0)  #: The op id before the first entry.


class LogId(NamedTuple):
    """The id of one log on a node: the tablet, and the generation in its superblock."""

    tablet_id: TabletId
    generation: int

    def __str__(self) -> str:
        return f"{self.tablet_id}/{self.generation}"


def node_id(text: str) -> NodeId:
    """Return ``text`` as a node id. Raises ``BadIdentifier`` if it does not have the form of one."""
    return NodeId(_matching(_NODE_ID, text, "node uuid", "32 lower-case hexadecimal digits"))


def incarnation_id(text: str) -> IncarnationId:
    """Return ``text`` as an incarnation id. Raises ``BadIdentifier`` if it does not have the form of one."""
    return IncarnationId(_matching(_INCARNATION_ID, text, "incarnation id", "16 lower-case hexadecimal digits"))


def tablet_id(text: str) -> TabletId:
    """Return ``text`` as a tablet id, which is safe as a file name. Raises ``BadIdentifier`` if it is not."""
    return TabletId(_matching(_PATH_SAFE, text, "tablet id", _PATH_SAFE_TEXT))


def cluster_id(text: str) -> ClusterId:
    """Return ``text`` as a cluster id. It has the alphabet of a tablet id. Raises ``BadIdentifier`` otherwise."""
    return ClusterId(_matching(_PATH_SAFE, text, "cluster id", _PATH_SAFE_TEXT))


def client_id(text: str) -> ClientId:
    """Return ``text`` as a client id. It has the alphabet of a tablet id. Raises ``BadIdentifier`` otherwise."""
    return ClientId(_matching(_PATH_SAFE, text, "client id", _PATH_SAFE_TEXT))


def source_id(text: str) -> SourceId:
    """Return ``text`` as a source id. Raises ``BadIdentifier`` if it is empty, too long or cannot be printed."""
    if not 0 < len(text) <= SOURCE_LENGTH_MAX or not text.isprintable():
        raise BadIdentifier("source", text, f"1 to {SOURCE_LENGTH_MAX} printable characters")
    return SourceId(text)


def _matching(pattern: re.Pattern[str], text: str, what: str, expected: str) -> str:
    if not pattern.fullmatch(text):
        raise BadIdentifier(what, text, expected)
    return text
