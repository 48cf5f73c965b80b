"""Services that register themselves with the host."""
