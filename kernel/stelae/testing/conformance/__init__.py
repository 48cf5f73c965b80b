"""Conformance suites: one per engine contract, over a fixture that can crash and reopen."""
