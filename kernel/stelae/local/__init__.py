"""A local cluster of real processes."""
