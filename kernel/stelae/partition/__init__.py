"""Partitioning: how the rows of a table are distributed over its tablets, by hash, by range, or by both."""
