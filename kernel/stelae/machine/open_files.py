"""The limit of open files of a process."""

from __future__ import annotations

import resource
from contextlib import suppress


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files to the hard limit, and return it. ``-1``: there is no limit.

    A node has a handle for each connection, for each log segment and for each block of rows that is read. The usual
    soft limit, 1,024, is for programs that call ``select``, which a node does not. A flood of connections could use all
    handles up, and a store that cannot open a block while it applies an entry fails its replica."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # Some systems allow less than the hard limit says.
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
