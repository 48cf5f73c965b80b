"""Disks that fail between tests and live processes: rules for the disk's fault seam, read from a file.

The file is a JSON list of rules, such as ``[{"below": "wals", "operations": ["write", "sync"], "error": "EIO"}]``.
It is looked at when the disk is used, at most every ``rules_file.LOOK_S``: replace it whole, by renaming, to change
the rules while a node runs. No file, or an empty list: nothing fails."""

import errno
import os
import threading
from dataclasses import dataclass, field

import msgspec

from stelae.local.chaos.rules_file import RulesFile
from stelae.spi.errors import ConfigError

ALL = ("read", "write", "sync", "metadata")


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
    _file: RulesFile = field(init=False)
    _passed: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._file = RulesFile(self.path)

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
        if not self._file.due():
            return
        with self._lock:
            if self._file.changed():
                self.rules = self._file.rules(DiskRule, "the disk", self._check)
                self._passed.clear()

    def _check(self, rule: DiskRule) -> None:
        """``ConfigError``: a rule names an operation or an error that there is not."""
        unknown = set(rule.operations) - set(ALL)
        if unknown or not isinstance(getattr(errno, rule.error, None), int):
            fact = f"a rule has the operations {', '.join(rule.operations)} and the error {rule.error}"
            hint = f"operations are {', '.join(ALL)}; errors such as EIO and ENOSPC"
            raise ConfigError(fact, where=self.path, hint=hint)


def _is_below(path: str, directory: str) -> bool:
    return not directory or path == directory or path.startswith(f"{directory}/")
