"""Conformance suites: one for each engine contract, with a harness that can crash and reopen the engine."""
