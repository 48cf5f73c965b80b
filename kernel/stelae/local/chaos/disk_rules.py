"""Disks that fail between tests and live processes: rules for the disk's fault seam, read from a file.

The file is a JSON list of rules, such as ``[{"below": "wals", "operations": ["write", "sync"], "error": "EIO"}]``.
It is looked at when the disk is used, at most every ``LOOK_S``: replace it whole, by renaming, to change the rules
while a node runs. No file, or an empty list: nothing fails."""

import errno
import os
import threading
import time
from dataclasses import dataclass, field

import msgspec

from stelae.spi.errors import ConfigError
from stelae.spi.settings import setting

LOOK_S = 0.02
"""How long rules that were read are used before the file is looked at again."""

ALL = ("read", "write", "sync", "metadata")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosSettings:
    """Section ``[chaos]``: for tests of faults, never for production."""

    disk_rules: str = setting("", reason="a file of rules by which this node's disk fails; empty: it never does so")


class DiskRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operations that fail with an error, below a path of the node's directory; empty: everywhere.

    ``after`` lets so many matching operations pass before."""

    below: str = ""
    operations: tuple[str, ...] = ALL
    error: str = "EIO"
    after: int = 0


@dataclass(slots=True, eq=False)
class DiskFaults:
    """The rules of one node. Any thread may ask.

    Args:
        path: the file of rules; it need not exist.
        root: the node's directory, to which ``below`` is relative."""

    path: str
    root: str
    rules: tuple[DiskRule, ...] = ()
    _read: tuple[int, int] = (0, 0)
    _look_at: float = 0.0
    _passed: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def active(self) -> bool:
        """Whether there are any rules."""
        self._look()
        return bool(self.rules)

    def judge(self, path: str, operation: str) -> int:
        """Return the ``errno`` with which an operation on a path fails; 0: none."""
        self._look()
        if not self.rules:
            return 0
        inside = os.path.relpath(path, self.root)
        with self._lock:
            for number, rule in enumerate(self.rules):
                if operation not in rule.operations or not _is_below(inside, rule.below):
                    continue
                self._passed[number] = passed = self._passed.get(number, 0) + 1
                if passed > rule.after:
                    return int(getattr(errno, rule.error))
        return 0

    def _look(self) -> None:
        """Read the file again if it is another one."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_S
        try:
            found = os.stat(self.path)
        except OSError:
            stamp = (0, 0)
        else:
            stamp = (found.st_mtime_ns, found.st_ino)
        with self._lock:
            if stamp == self._read:
                return
            self._read = stamp
            self.rules = _read_rules(self.path) if stamp != (0, 0) else ()
            self._passed.clear()


def _is_below(path: str, directory: str) -> bool:
    return not directory or path == directory or path.startswith(f"{directory}/")


def _read_rules(path: str) -> tuple[DiskRule, ...]:
    """Read the rules; ``ConfigError``: the file holds others than these."""
    try:
        with open(path, "rb") as file:
            rules = msgspec.json.decode(file.read(), type=tuple[DiskRule, ...])
    except (OSError, ValueError) as error:
        raise ConfigError(f"the rules of the disk cannot be read: {error}", where=path) from error
    for rule in rules:
        unknown = set(rule.operations) - set(ALL)
        if unknown or not isinstance(getattr(errno, rule.error, None), int):
            fact = f"a rule has the operations {', '.join(rule.operations)} and the error {rule.error}"
            raise ConfigError(fact, where=path, hint=f"operations are {', '.join(ALL)}; errors such as EIO and ENOSPC")
    return rules
