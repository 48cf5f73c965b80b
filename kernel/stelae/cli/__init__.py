"""The `stelae` command."""
