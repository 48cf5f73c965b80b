"""``python -m stelae``, but a node kills a process at a named step, as a file orders.

The steps are the crash points of copies and deletions (``CrashPoints``), and the requests that a master sends to tablet
servers. The file of ``STELAE_KILL_ORDER`` has the name of a step and, after a space, the id of the process that ends
with SIGKILL, or ``self``. Whichever node is first at the step carries the order out, once."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from stelae.cli.main import main
from stelae.host.metadata_files import CrashPoints
from stelae.protocol.actions import ChangeConfig
from stelae.server.master.core.events import Send
from stelae.server.master.driver.master import Master

ORDER = Path(os.environ["STELAE_KILL_ORDER"])
DONE = ORDER.with_suffix(".done")


def passed(step: str) -> None:
    """Carry the order out if it is for this step."""
    try:
        wanted, victim = ORDER.read_text().split()
        if wanted != step:
            return
        ORDER.rename(DONE)  # Only one node succeeds.
    except (FileNotFoundError, ValueError):
        return
    os.kill(os.getpid() if victim == "self" else int(victim), signal.SIGKILL)


def _hit(self: CrashPoints, point: str) -> None:
    passed(point)


_send = Master._send


def _send_between_steps(self: Master, effect: Send) -> None:
    action = effect.action
    kind = action.change if isinstance(action, ChangeConfig) else type(action).__name__
    passed(f"master.before.{kind}")
    _send(self, effect)
    passed(f"master.after.{kind}")


CrashPoints.hit = _hit  # type: ignore[method-assign]
Master._send = _send_between_steps  # type: ignore[method-assign]
sys.argv = ["stelae", *(word for word in sys.argv[1:] if word not in ("-m", "stelae"))]
main()
