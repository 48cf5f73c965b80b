"""Faults injected into live processes: rules for the network and for the disk, read from files."""
