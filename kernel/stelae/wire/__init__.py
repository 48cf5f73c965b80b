"""Messages between nodes and from clients, over ZeroMQ.

``messenger.Messenger`` is the door; everything else here is a part of it. Protocol logic
(``envelope``, ``parcels``, ``credit``, ``calls``, ``connections``, ``faults``) knows no socket;
``sockets`` has one class per kind of socket and knows no protocol.
"""
