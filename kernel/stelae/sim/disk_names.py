"""Directories of the virtual disk, and which names survive a crash.

Creating, renaming or removing a name is durable once its directory was synced. Until then a crash may keep or lose the
operation. The result is consistent: of two operations on one name the later never survives without the earlier, a
rename is never half done, and a lost directory takes its contents with it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeAlias

from stelae.sim.disk_contents import FileContents, Survival
from stelae.sim.draw import below, chance


class Directory:
    """An inode that maps names to inodes: the visible names, and the durable ones."""

    __slots__ = ("durable", "entries", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}


Inode: TypeAlias = FileContents | Directory
NameEdit: TypeAlias = tuple[Directory, str, Inode | None]
"""A directory, a name in it, and the inode that the name gets; ``None`` removes the name."""


@dataclass(slots=True, eq=False)
class NameChange:
    """One operation on names that is not durable yet.

    Attributes:
        edits: the names that the operation sets and removes.
        waits_for: numbers of the directories that must be synced to make the operation durable.
    """

    edits: tuple[NameEdit, ...]
    waits_for: list[int] = field(default_factory=list)

    def touches(self, other: NameChange) -> bool:
        """Return true if both operations change the same name of the same directory."""
        return any(
            own is other_directory and name == other_name
            for own, name, _ in self.edits
            for other_directory, other_name, _ in other.edits
        )


class VirtualNames:
    """The tree of names below the root, and the operations on names that are not durable yet."""

    def __init__(self) -> None:
        self.root = Directory(0)
        self.pending: list[NameChange] = []

    def change(self, *edits: NameEdit) -> None:
        """Carry out one operation. It is visible at once."""
        for directory, name, node in edits:
            _assign(directory.entries, name, node)
        self.pending.append(NameChange(edits, [directory.number for directory, _, _ in edits]))

    def sync(self, directory: Directory) -> None:
        """Make the operations on a directory durable, and the earlier operations that they depend on."""
        ready = []
        for change in self.pending:
            change.waits_for = [n for n in change.waits_for if n != directory.number]
            if not change.waits_for:
                ready.append(change)
        durable = {id(change) for change in ready}
        for position in range(len(self.pending) - 1, -1, -1):
            change = self.pending[position]
            later = self.pending[position + 1 :]
            if any(id(other) in durable and change.touches(other) for other in later):
                durable.add(id(change))
        for change in self.pending:
            if id(change) in durable:
                _make_durable(change)
        self.pending = [change for change in self.pending if id(change) not in durable]

    def after_crash(self, rng: random.Random, survival: Survival) -> VirtualNames:
        """Return the names and files that are on disk after a power loss now."""
        for change in self._survivors(rng, survival):
            _make_durable(change)
        after = VirtualNames()
        _rebuild(self.root, after.root, rng, survival)
        return after

    def copy(self) -> VirtualNames:
        """Return an independent copy, with the un-synced operations."""
        twin = VirtualNames()
        nodes: dict[int, Inode] = {}
        twin.root = _copied_directory(self.root, nodes)
        twin.pending = [
            NameChange(
                tuple(
                    (_copied_directory(d, nodes), name, None if n is None else _copied(n, nodes))
                    for d, name, n in change.edits
                ),
                list(change.waits_for),
            )
            for change in self.pending
        ]
        return twin

    def _survivors(self, rng: random.Random, survival: Survival) -> list[NameChange]:
        if survival is Survival.KEPT:
            return self.pending
        if survival is Survival.LOST or not self.pending:
            return []
        fate = below(rng, 4)
        if fate < 2:
            return self.pending if fate else []
        if fate == 2:
            return self.pending[: below(rng, len(self.pending) + 1)]
        kept: list[NameChange] = []
        lost: list[NameChange] = []
        for change in self.pending:
            gone = chance(rng, 0.5) or any(change.touches(other) for other in lost)
            (lost if gone else kept).append(change)
        return kept


def _assign(names: dict[str, Inode], name: str, node: Inode | None) -> None:
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


def _make_durable(change: NameChange) -> None:
    for directory, name, node in change.edits:
        _assign(directory.durable, name, node)


def _rebuild(old: Directory, new: Directory, rng: random.Random, survival: Survival) -> None:
    for name in sorted(old.durable):
        node = old.durable[name]
        twin: Inode
        if isinstance(node, Directory):
            twin = Directory(node.number)
            _rebuild(node, twin, rng, survival)
        else:
            twin = FileContents(node.number, node.after_crash(rng, survival))
        new.entries[name] = new.durable[name] = twin


def _copied(node: Inode, done: dict[int, Inode]) -> Inode:
    known = done.get(node.number)
    if known is not None:
        return known
    if isinstance(node, Directory):
        return _copied_directory(node, done)
    twin = done[node.number] = node.copy()
    return twin


def _copied_directory(node: Directory, done: dict[int, Inode]) -> Directory:
    known = done.get(node.number)
    if isinstance(known, Directory):
        return known
    twin = Directory(node.number)
    done[node.number] = twin
    twin.entries = {name: _copied(child, done) for name, child in node.entries.items()}
    twin.durable = {name: _copied(child, done) for name, child in node.durable.items()}
    return twin
