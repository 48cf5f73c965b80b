"""Messages between nodes and from clients, over ZeroMQ.

``messenger.Messenger`` is the door; all else is a part of it. ``link`` is the side that connects, ``station`` listens;
they share the rules of ``envelope``, ``parcels`` and ``common``, and meet the event loop in ``edge`` alone."""
