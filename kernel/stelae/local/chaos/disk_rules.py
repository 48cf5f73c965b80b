"""Makes operations of a running node's disk fail, or take longer, by rules from a file. Used by tests.

The file is a JSON list of rules, such as ``[{"below": "wals", "operations": ["write", "sync"], "error": "EIO"}]``, or
``[{"operations": ["sync"], "delay_ms": 50}]`` for a slow disk. The node checks the file when it uses the disk, at most
every ``rules_file.LOOK_S``. To change the rules while the node runs, replace the file by a rename. Without a file, or
with an empty list, every operation passes at once."""

import errno
import os
import threading
import time
from dataclasses import dataclass, field

import msgspec

from stelae.local.chaos.rules_file import RulesFile
from stelae.spi.errors import ConfigError

ALL = ("read", "write", "sync", "metadata")
DELAY_MS_MAX = 60_000
"""The longest delay. A thread that waits longer could not be distinguished from one that hangs."""


class DiskRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Operations that fail, or that are slow."""

    below: str = ""  #: A path in the node's directory; the rule applies to it and below. Empty: everywhere.
    operations: tuple[str, ...] = ALL
    error: str = "EIO"  #: Name of the ``errno``. Not used by a rule with a delay.
    delay_ms: int = 0  #: Above 0: each operation takes this much longer, and does not fail.
    after: int = 0  #: Number of matching operations that pass before the first one fails or is slow.


@dataclass(slots=True, eq=False)
class DiskFaults:
    """The rules of one node. Safe to use from any thread.

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
        """Return the ``errno`` with which an operation on a path fails; 0: none. Waits as long as the disk is slow.

        The first rule that applies decides."""
        self._look()
        rule = self._applying(os.path.relpath(path, self.root), operation) if self.rules else None
        if rule is None:
            return 0
        if rule.delay_ms:
            time.sleep(rule.delay_ms / 1000)  # Without the lock: a slow disk delays each thread by itself.
            return 0
        return int(getattr(errno, rule.error))

    def _applying(self, inside: str, operation: str) -> DiskRule | None:
        """Return the first rule that applies to an operation on a path in the node's directory, and count for it."""
        with self._lock:
            for number, rule in enumerate(self.rules):
                if operation not in rule.operations or not _is_below(inside, rule.below):
                    continue
                self._passed[number] = passed = self._passed.get(number, 0) + 1
                if passed > rule.after:
                    return rule
        return None

    def _look(self) -> None:
        """Read the file again if it has changed."""
        if not self._file.due():
            return
        with self._lock:
            if self._file.changed():
                self.rules = self._file.rules(DiskRule, "the disk", self._check)
                self._passed.clear()

    def _check(self, rule: DiskRule) -> None:
        """Check a rule; ``ConfigError``: an operation or error does not exist, or the delay is out of range."""
        unknown = set(rule.operations) - set(ALL)
        if unknown or not isinstance(getattr(errno, rule.error, None), int):
            fact = f"a rule has the operations {', '.join(rule.operations)} and the error {rule.error}"
            hint = f"operations are {', '.join(ALL)}; errors such as EIO and ENOSPC"
            raise ConfigError(fact, where=self.path, hint=hint)
        if not 0 <= rule.delay_ms <= DELAY_MS_MAX:
            fact = f"a rule has a delay of {rule.delay_ms} ms"
            raise ConfigError(fact, where=self.path, hint=f"delay_ms is from 0 to {DELAY_MS_MAX}")


def _is_below(path: str, directory: str) -> bool:
    return not directory or path == directory or path.startswith(f"{directory}/")
