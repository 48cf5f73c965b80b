"""What the commands about copies say of a server that carries out their orders, and the commands that they propose."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from stelae.cli import run_copy_orders
from stelae.cli.run_copies import remarks
from stelae.cli.run_copy_orders import run_pause, run_resume
from stelae.lifecycle.waiting_copies import WaitingCopy
from stelae.protocol.copy_list_messages import CopiesReply
from stelae.protocol.master_messages import ServerLine, ServerMode
from stelae.spi.ids import NodeId, TabletId
from tests.unit.tserver.test_copy_operations import Server
from tests.unit.tserver.test_copy_target import ASKED

T = TabletId("3f2a" * 8)
LINE = ServerLine(node_id=NodeId("a" * 32), address="127.0.0.1:7053", location="", mode=ServerMode.NORMAL, silent_ms=1)


class Cluster:
    """Masters that know one tablet server, which answers in this process."""

    timeout_s = 1.0

    def __init__(self) -> None:
        self.server = Server()

    @asynccontextmanager
    async def masters(self) -> AsyncIterator[tuple[Any, Any]]:
        yield SimpleNamespace(connection=self), None

    async def reach(self, _address: str, *, deadline_ms: int) -> NodeId:
        assert deadline_ms == 1_000
        return LINE.node_id

    async def ask(self, _node: NodeId, kind: str, body: Any, *, deadline_ms: int) -> Any:
        assert deadline_ms == 1_000
        answers: list[list[bytes]] = []
        self.server.handlers[kind](SimpleNamespace(body=[body], reply=answers.append))
        return SimpleNamespace(body=answers[0])


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    async def named(*_: Any) -> ServerLine:
        return LINE

    monkeypatch.setattr(run_copy_orders, "named_server", named)
    return Cluster()


def test_the_end_of_a_pause_of_all_copies_is_told_also_if_none_has_begun(cluster: Any, capsys: Any) -> None:
    """It said "nothing to do: no copy was paused", after it had ended the pause."""
    run_pause(cluster, "tserver-3", None, everything=True, for_s=3600, as_json=False)
    assert "with: stelae copy resume --all --to tserver-3\n" in capsys.readouterr().err
    run_resume(cluster, "tserver-3", None, everything=True, as_json=False)
    assert capsys.readouterr().err == "resumed: all copies to 127.0.0.1:7053, also those that have not begun\n"
    assert not cluster.server.holds.pauses_all(1_000)
    run_resume(cluster, "tserver-3", None, everything=True, as_json=False)
    assert capsys.readouterr().err == "nothing to do: no copy to 127.0.0.1:7053 was paused or cancelled\n"


def test_the_proposed_command_resumes_what_was_paused(cluster: Any, capsys: Any) -> None:
    """It was `stelae copy resume --to tserver-3`, which is refused: it names neither a tablet nor --all."""
    cluster.server.copies.waiting[T] = WaitingCopy(asked=ASKED, paused=False, asked_us=0)
    run_pause(cluster, "tserver-3", T[:8], everything=False, for_s=3600, as_json=False)
    assert f"with: stelae copy resume {T[:8]} --to tserver-3\n" in capsys.readouterr().err
    run_resume(cluster, "tserver-3", T[:8], everything=False, as_json=False)
    assert capsys.readouterr().err == f"resumed: the copy of tablet {T} to 127.0.0.1:7053\n"


def test_a_server_whose_copies_are_paused_is_named_in_the_command_that_resumes_them() -> None:
    """It was `stelae copy resume --all`, which is refused without --to."""
    remark = next(remarks(LINE, CopiesReply(copies=(), paused=True)))
    assert remark.endswith("; go on with: stelae copy resume --all --to 127.0.0.1:7053")
