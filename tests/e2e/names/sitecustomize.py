"""Resolves names by a file, in the processes of a test.

``STELAE_TEST_HOSTS`` names the file. Each of its lines is an address and a name. Python imports this module at its
start if this folder is in ``PYTHONPATH``."""

import os
import socket
from typing import Any

_getaddrinfo = socket.getaddrinfo


def _by_file(host: Any, *arguments: Any, **more: Any) -> Any:
    with open(os.environ["STELAE_TEST_HOSTS"], encoding="utf-8") as file:
        known = {name: address for address, name in map(str.split, file)}
    return _getaddrinfo(known.get(host, host), *arguments, **more)


socket.getaddrinfo = _by_file
