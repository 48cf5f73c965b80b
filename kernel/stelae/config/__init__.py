"""How a node is put together: ``node.toml`` is read and checked, and plugins are found."""
