"""The process at the other end of a bare round trip. It prints its port, and echoes until its standard input closes."""

from __future__ import annotations

import sys

import zmq


def main() -> None:
    """Echo messages."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(sys.stdin.fileno(), zmq.POLLIN)
    try:
        while sys.stdin.fileno() not in dict(poller.poll()):
            socket.send_multipart(socket.recv_multipart())
    finally:
        context.destroy(linger=0)


if __name__ == "__main__":
    main()
