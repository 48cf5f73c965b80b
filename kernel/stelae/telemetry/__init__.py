"""A node's telemetry: metrics over HTTP, and the log."""
