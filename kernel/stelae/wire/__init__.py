"""Messages between nodes and from clients, over ZeroMQ."""
