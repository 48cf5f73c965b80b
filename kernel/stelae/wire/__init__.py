"""Messages between nodes and from clients, over ZeroMQ.

``messenger.Messenger`` is the public class. Its parts:

- ``link``: one outgoing connection, and its reconnection;
- ``listener``: the incoming connections;
- ``calls``: requests that wait for an answer; ``requests``: requests that this process answers;
- ``envelope``, ``packets``, ``credit``: the wire format and the flow control;
- ``sockets``: the only module that touches ZeroMQ sockets and the event loop.

A *message* is a request, an answer or a one-way message. A *packet* is one ZeroMQ multipart message: an envelope and
the bodies of all messages that one turn of the event loop produced for one destination."""
