"""Identities: what names a node, a tablet, a log and a position in it.

Everything here may arrive from a peer or become part of a path, so each kind of id has one
validator and a closed alphabet. Nothing in this module touches the disk or the network.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NewType

from stelae.spi.errors import BadIdentifier

NodeId = NewType("NodeId", str)
"""Permanent name of a node: 32 lower-case hexadecimal digits, drawn once at format."""

ClusterId = NewType("ClusterId", str)
"""Name of the cluster a node belongs to; written once, at format or at the first join."""

IncarnationId = NewType("IncarnationId", str)
"""Name of one run of a process: 16 lower-case hexadecimal digits, new at each start."""

TabletId = NewType("TabletId", str)
"""Name of a tablet; becomes a file name, hence the narrow alphabet."""

ClientId = NewType("ClientId", str)
"""Name of one client session, under which its writes are numbered."""

ID_LENGTH_MAX = 64
"""Longest cluster, tablet or client id in characters: fits a file name with any suffix we add."""

_NODE_ID = re.compile(r"[0-9a-f]{32}")
_INCARNATION_ID = re.compile(r"[0-9a-f]{16}")
_PATH_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


class OpId(NamedTuple):
    """Position of an entry in a replicated log: ordered by term first, then by index.

    ``term`` and ``index`` are both at least 0 and may exceed 2**32; ``index`` is 1-based, and
    ``OpId(0, 0)`` stands before the first entry of a log that never held one.
    """

    term: int
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.term}.{self.index}"


ZERO = OpId(0, 0)
"""The op id before the first entry ever."""


class LogId(NamedTuple):
    """Name of one log on a node: the tablet and the generation that its superblock records."""

    tablet_id: TabletId
    generation: int

    def __str__(self) -> str:
        return f"{self.tablet_id}/{self.generation}"


def node_id(text: str) -> NodeId:
    """Return ``text`` as a node id.

    Raises:
        BadIdentifier: unless it is 32 lower-case hexadecimal digits.
    """
    if not _NODE_ID.fullmatch(text):
        raise BadIdentifier("node uuid", text, "32 lower-case hexadecimal digits")
    return NodeId(text)


def incarnation_id(text: str) -> IncarnationId:
    """Return ``text`` as an incarnation id.

    Raises:
        BadIdentifier: unless it is 16 lower-case hexadecimal digits.
    """
    if not _INCARNATION_ID.fullmatch(text):
        raise BadIdentifier("incarnation id", text, "16 lower-case hexadecimal digits")
    return IncarnationId(text)


def tablet_id(text: str) -> TabletId:
    """Return ``text`` as a tablet id that is safe to use as a file name.

    Raises:
        BadIdentifier: if it is empty, too long, or has a character outside ``[A-Za-z0-9_-]``.
    """
    return TabletId(_path_safe("tablet id", text))


def cluster_id(text: str) -> ClusterId:
    """Return ``text`` as a cluster id; same alphabet as a tablet id.

    Raises:
        BadIdentifier: if it is empty, too long, or has a character outside ``[A-Za-z0-9_-]``.
    """
    return ClusterId(_path_safe("cluster id", text))


def client_id(text: str) -> ClientId:
    """Return ``text`` as a client id; same alphabet as a tablet id.

    Raises:
        BadIdentifier: if it is empty, too long, or has a character outside ``[A-Za-z0-9_-]``.
    """
    return ClientId(_path_safe("client id", text))


def _path_safe(what: str, text: str) -> str:
    if len(text) > ID_LENGTH_MAX or not _PATH_SAFE.fullmatch(text):
        raise BadIdentifier(
            what,
            text,
            f"1 to {ID_LENGTH_MAX} of the characters A-Z a-z 0-9 _ -, "
            "starting with a letter or a digit",
        )
    return text
