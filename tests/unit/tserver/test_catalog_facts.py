"""What a tablet server answers to the recovery of a lost catalog: all tablets, in answers that fit a message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stelae.protocol.codec import decode, encode
from stelae.protocol.recovery_messages import CATALOG_FACTS, CatalogFactsReply, CatalogFactsRequest, TabletFacts
from stelae.server.tserver import recovery_service
from stelae.server.tserver.recovery_service import FACTS_BYTES_MAX, RecoveryService
from stelae.spi.ids import TabletId

NAMES = [TabletId(f"{number:032x}") for number in range(20)]


class Server:
    """A server with replicas whose schemas have a size, and with tablets that did not start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, schema_bytes: int, failed: dict[TabletId, str]) -> None:
        def facts(replica: TabletId) -> TabletFacts:
            return TabletFacts(tablet_id=replica, schema=b"s" * schema_bytes)

        monkeypatch.setattr(recovery_service, "tablet_facts", facts)
        served: dict[str, Any] = {}
        running = {name: name for name in NAMES if name not in failed}
        messenger = SimpleNamespace(serve=served.__setitem__)
        node: Any = SimpleNamespace(messenger=messenger, replicas=running, failed_tablets=failed)
        RecoveryService(node).start()
        self._serve = served[CATALOG_FACTS]

    def page(self, after: TabletId | None) -> CatalogFactsReply:
        replies: list[bytes] = []
        body = [encode(CatalogFactsRequest(after))]
        self._serve(SimpleNamespace(kind=CATALOG_FACTS, body=body, reply=lambda frames: replies.extend(frames)))
        (reply,) = replies
        assert len(reply) < 4 * FACTS_BYTES_MAX
        return decode(reply, CatalogFactsReply)

    def pages(self) -> list[list[TabletId]]:
        """Every answer, one after the other."""
        found, after = [], None
        while True:
            page = self.page(after)
            found.append([facts.tablet_id for facts in page.tablets])
            if not page.more:
                return found
            after = found[-1][-1]


@pytest.mark.parametrize(("schema_bytes", "pages"), [(100, 1), (FACTS_BYTES_MAX // 4, 5), (2 * FACTS_BYTES_MAX, 20)])
def test_an_answer_is_bounded_in_bytes_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch, schema_bytes: int, pages: int
) -> None:
    """It was bounded in tablets only. A thousand wide schemas were above the limit of a message, and the catalog of
    such a server could not be recovered."""
    found = Server(monkeypatch, schema_bytes, {}).pages()
    assert len(found) == pages and [name for page in found for name in page] == NAMES


def test_tablets_that_did_not_start_are_told_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, 100, {NAMES[3]: "its log is damaged"})
    page = server.page(NAMES[2])
    assert page.tablets[0] == TabletFacts(tablet_id=NAMES[3], failure="its log is damaged")
    assert len(page.tablets) == len(NAMES) - 3 and not page.more
