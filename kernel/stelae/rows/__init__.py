"""Rows: key encoding and key order, predicates, checksums, checks of values, operations and their batches."""
