"""Whether a copy fits on the disk of its node, and what is removed so that it does.

Source: ``durability.md`` rules 21 and 22. Stages that no copy uses go first, then directories of the quarantine that
are superseded, each the oldest first. Nothing is removed if all of that would not be enough. A directory that the
superblock of its tablet names stays: it is the last data of a deleted replica, and of one whose copy is abandoned.

The same holds for a copy of rows alone.

Each is removed under the lock of its tablet. The tablet that is copied is locked already. Large directories take long,
so they are removed in the pool for scans or in that for copies, and never in the one that votes use."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from stelae.lifecycle.blocking_steps import Ask, OffLoop, Steps
from stelae.lifecycle.copy_cancelled import CopyCancelled
from stelae.lifecycle.copy_environment import CopyEnvironment
from stelae.lifecycle.copy_guards import CopyRefusal, CopyRefusalCode
from stelae.lifecycle.copy_items import ItemKind, kind_of
from stelae.lifecycle.copy_stage import remove_stage
from stelae.lifecycle.directory_size import bytes_below
from stelae.lifecycle.quarantine import Quarantined, is_superseded, list_quarantine, tablet_of
from stelae.lifecycle.stage_limits import StoredStage, list_stages
from stelae.spi.copy_plan import CopySnapshot
from stelae.spi.errors import StelaeError
from stelae.spi.ids import TabletId

log = logging.getLogger(__name__)


class _Removable(NamedTuple):
    what: StoredStage | Quarantined

    @property
    def tablet_id(self) -> TabletId:
        return self.what.tablet_id if isinstance(self.what, StoredStage) else tablet_of(self.what.name)

    @property
    def size_bytes(self) -> int:
        return self.what.size_bytes

    def __str__(self) -> str:
        if isinstance(self.what, StoredStage):
            return f"stage tablet={self.what.tablet_id} size_bytes={self.size_bytes}"
        about = self.what.about
        deleted = "" if about is None else f" table={about.table_name} deleted_us={about.deleted_us}"
        return f"quarantine name={self.what.name} size_bytes={self.size_bytes}{deleted}"


@dataclass
class CopySpace:
    """The space for one copy. All blocking work is done in steps of the copy.

    Files of rows are moved out of the stage. The log and an export are written a second time, for the engines."""

    env: CopyEnvironment
    tablet_id: TabletId
    snapshot: CopySnapshot
    cancelled: Callable[[], bool]
    _needed_bytes: int = 0
    _free_bytes: int = 0
    _removable: list[_Removable] = field(default_factory=list)

    def fits(self) -> Steps[bool]:
        """Return whether the copy is within the limit of stages, and there is enough free space now."""
        held: int = yield OffLoop(lambda: bytes_below(self.env.node.files, self._stage))
        items = self.snapshot.items
        twice_bytes = sum(item.size_bytes for item in items if kind_of(item.name) is not ItemKind.ROWS)
        self._needed_bytes = self._size_bytes + twice_bytes - held
        yield from self._measure()
        return self._is_within_limit and self._short_bytes <= 0

    def refusal(self) -> Steps[CopyRefusal | None]:
        """Return why the copy does not fit, whatever is removed; ``None`` if it does. Changes nothing."""
        limit = self.env.settings.bytes_max
        if not self._is_within_limit:
            fact = f"the copy has {self._size_bytes} bytes, and a stage may have {limit}"
            return CopyRefusal(CopyRefusalCode.TOO_LARGE, f"{fact}; raise [stage] bytes_max")
        found: list[_Removable] = yield OffLoop(self._list)
        manager = self.env.manager
        self._removable = [
            one for one in found if one.tablet_id == self.tablet_id or not manager.operation(one.tablet_id)
        ]
        return self._too_large() if self._removable_bytes < self._short_bytes else None

    def make(self) -> Steps[CopyRefusal | None]:
        """Remove what ``refusal`` has found, until the copy fits. Return why it does not fit, if it does not.

        Raises ``CopyCancelled``."""
        short_bytes = self._short_bytes
        while short_bytes > 0 and self._removable:
            if self.cancelled():
                raise CopyCancelled("the copy is cancelled")
            one = self._removable.pop(0)
            try:
                yield from self._remove(one)
            except (StelaeError, OSError) as error:
                log.warning("not removed for a copy of tablet=%s: %s reason=%s", self.tablet_id, one, error)
                continue
            short_bytes -= one.size_bytes
            what = (self.tablet_id, self._needed_bytes, self._free_bytes, one)
            log.info("removed for a copy of tablet=%s needed_bytes=%d free_bytes=%d: %s", *what)
        yield from self._measure()
        return self._too_large() if self._short_bytes > 0 else None

    # -- what is there ---------------------------------------------------------------------------

    @property
    def _stage(self) -> str:
        return self.env.node.layout.stage_of(self.tablet_id)

    @property
    def _size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.snapshot.items)

    @property
    def _is_within_limit(self) -> bool:
        return self._size_bytes <= self.env.settings.bytes_max

    @property
    def _short_bytes(self) -> int:
        return self._needed_bytes - self._free_bytes

    @property
    def _removable_bytes(self) -> int:
        return sum(one.size_bytes for one in self._removable)

    def _measure(self) -> Steps[None]:
        node = self.env.node
        self._free_bytes = yield OffLoop(lambda: node.files.space_left(node.layout.root))

    def _too_large(self) -> CopyRefusal:
        fact = f"the copy needs {self._needed_bytes} more bytes on the disk, of which {self._free_bytes} are free; "
        fact += f"stages that no copy uses, and superseded data in quarantine, have {self._removable_bytes}, "
        fact += "which is not enough" if self._removable else "so nothing can be removed for it"
        return CopyRefusal(CopyRefusalCode.TOO_LARGE, f"{fact}; free space, or purge the rest of the quarantine")

    def _list(self) -> list[_Removable]:
        files, layout = self.env.node.files, self.env.node.layout
        stages = [one for one in list_stages(files, layout) if one.tablet_id != self.tablet_id]
        superseded = [one for one in list_quarantine(files, layout) if is_superseded(files, layout, one)]
        return [*map(_Removable, stages), *map(_Removable, superseded)]

    def _remove(self, one: _Removable) -> Steps[None]:
        node, manager, tablet, what = self.env.node, self.env.manager, one.tablet_id, one.what
        if isinstance(what, Quarantined):
            steps = manager.purge_steps(what.name, superseded=what)
        else:
            steps = _one_step(lambda: remove_stage(node.files, node.layout, tablet))
        if tablet == self.tablet_id:
            yield from steps
        else:
            what_for = "cleaned" if isinstance(what, StoredStage) else "purged"
            yield Ask(lambda done: manager.run(tablet, what_for, steps, done, pool=node.scans))


def _one_step(work: Callable[[], None]) -> Steps[None]:
    yield OffLoop(work)
