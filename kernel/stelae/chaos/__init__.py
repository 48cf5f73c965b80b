"""Faults on purpose: what tests and ``stelae chaos`` do to live processes."""
