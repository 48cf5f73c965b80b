"""Reads and checks ``node.toml``, and finds the plugins that it names."""
