"""A process with a messenger that echoes: ``python wire_echo_node.py ADDRESS RUN``."""

from __future__ import annotations

import asyncio
import sys

from stelae.wire.messenger import Messenger
from tests.unit.wire.worlds import messenger


async def main(address: str, run: int) -> None:
    node: Messenger = messenger(2, run=run)[0]
    node.serve("echo", lambda request: request.reply(request.body))
    node.on_message("note", lambda message: None)
    print(node.bind(address), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
