"""Messages between nodes and from clients, over ZeroMQ.

``messenger.Messenger`` is the door; everything else here is a part of it. ``link`` is the side
that connects, ``station`` the side that listens; they share the rules of ``envelope``, ``parcels``
and ``common``, and meet the event loop in ``edge`` alone."""
