"""The error of a command that was given a directory without a node, with the directories that it may mean.

People often give the folder that holds ``node.toml``. That file names the directory of the node, another one."""

from __future__ import annotations

import os
from pathlib import Path

from stelae.host.directory_layout import DirectoryLayout
from stelae.host.instance import Instance, InstanceFile, NotFormatted
from stelae.machine.files import RealFiles
from stelae.spi.errors import StorageError

FOUND_MAX = 5
"""The most directories that the message names."""


class NoNodeHere(StorageError, code="NO_NODE_HERE"):
    """A directory has no node.

    Args:
        root: the directory.
        near: look in the directory, and beside it, for what the user may mean.
    """

    def __init__(self, root: str, *, near: bool = True) -> None:
        wanted = os.path.basename(DirectoryLayout(root).instance)
        fact = f"there is no node in this directory: it has no file {wanted!r}, which `stelae fs format` writes"
        super().__init__(f"{fact}{_advice(root) if near else ''}", path=root)


def instance_in(root: str, *, near: bool) -> Instance:
    """Return the instance file of a directory. ``NoNodeHere``: it has none. Raises otherwise as ``InstanceFile.load``.

    Args:
        root: the directory.
        near: as for ``NoNodeHere``.
    """
    try:
        return InstanceFile(RealFiles(), DirectoryLayout(root)).load()
    except NotFormatted as error:
        raise NoNodeHere(root, near=near) from error


def _advice(root: str) -> str:
    """Return what the user may mean, as the rest of a sentence."""
    nodes, config = _nodes_within(root), Path(root, "node.toml")
    more = f" or one of {len(nodes) - FOUND_MAX} more" if len(nodes) > FOUND_MAX else ""
    ways = [f"the directory of a node: {', '.join(nodes[:FOUND_MAX])}{more}"] if nodes else []
    if config.is_file():
        ways.append(f"--config {config}")
    return f"; pass {', or '.join(ways)}" if ways else "; pass the [node] directory of its node.toml"


def _nodes_within(root: str) -> list[str]:
    """Return the directories of nodes up to two levels below a directory, sorted."""
    found = []
    for pattern in ("*", "*/*"):
        try:
            found += [
                str(path) for path in Path(root).glob(pattern) if os.path.isfile(DirectoryLayout(str(path)).instance)
            ]
        except OSError:
            break  # It cannot be read. The hint is only shorter then.
    return sorted(found)
