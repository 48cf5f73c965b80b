"""Identities: what names a node, a tablet, a log and a position in it.

Each may arrive from a peer or become part of a path, and has one validator and a closed alphabet. All here is pure."""

import re
from typing import NamedTuple, NewType

from stelae.spi.errors import BadIdentifier

#: Permanent name of a node: 32 lower-case hexadecimal digits, drawn once at format.
NodeId = NewType("NodeId", str)
#: Name of the cluster a node belongs to; written once, at format or at the first join.
ClusterId = NewType("ClusterId", str)
#: Name of one run of a process: 16 lower-case hexadecimal digits, new at each start.
IncarnationId = NewType("IncarnationId", str)
#: Name of a tablet; becomes a file name, hence the narrow alphabet.
TabletId = NewType("TabletId", str)
#: Name of one client session, under which its writes are numbered.
ClientId = NewType("ClientId", str)

ID_LENGTH_MAX = 64  #: Characters of a cluster, tablet or client id: fits file names with suffixes.

_NODE_ID = re.compile(r"[0-9a-f]{32}")
_INCARNATION_ID = re.compile(r"[0-9a-f]{16}")
_PATH_SAFE = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{ID_LENGTH_MAX - 1}}}")
_PATH_SAFE_TEXT = f"1 to {ID_LENGTH_MAX} of the characters A-Z a-z 0-9 _ -, starting with a letter or a digit"


class OpId(NamedTuple):
    """Position in a log, ordered by term, then ``index`` (from 1); neither is negative, both may exceed 2**32."""

    term: int
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.term}.{self.index}"


ZERO = OpId(0, 0)  #: The op id before the first entry ever.


class LogId(NamedTuple):
    """Name of one log on a node: the tablet and the generation that its superblock records."""

    tablet_id: TabletId
    generation: int

    def __str__(self) -> str:
        return f"{self.tablet_id}/{self.generation}"


def node_id(text: str) -> NodeId:
    """Return ``text`` as a node id; ``BadIdentifier`` unless it has the form of one."""
    return NodeId(_matching(_NODE_ID, text, "node uuid", "32 lower-case hexadecimal digits"))


def incarnation_id(text: str) -> IncarnationId:
    """Return ``text`` as an incarnation id; ``BadIdentifier`` unless it has the form of one."""
    return IncarnationId(_matching(_INCARNATION_ID, text, "incarnation id", "16 lower-case hexadecimal digits"))


def tablet_id(text: str) -> TabletId:
    """Return ``text`` as a tablet id that is safe as a file name; else ``BadIdentifier``."""
    return TabletId(_matching(_PATH_SAFE, text, "tablet id", _PATH_SAFE_TEXT))


def cluster_id(text: str) -> ClusterId:
    """Return ``text`` as a cluster id, of the same alphabet; else ``BadIdentifier``."""
    return ClusterId(_matching(_PATH_SAFE, text, "cluster id", _PATH_SAFE_TEXT))


def client_id(text: str) -> ClientId:
    """Return ``text`` as a client id, of the same alphabet; else ``BadIdentifier``."""
    return ClientId(_matching(_PATH_SAFE, text, "client id", _PATH_SAFE_TEXT))


def _matching(pattern: re.Pattern[str], text: str, what: str, expected: str) -> str:
    if not pattern.fullmatch(text):
        raise BadIdentifier(what, text, expected)
    return text
