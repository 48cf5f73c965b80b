"""Clients: connect, write, scan."""
