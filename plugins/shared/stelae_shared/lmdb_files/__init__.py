"""What the engines on LMDB have in common: how an environment is opened, used, filled, checked and marked.

A library for plugins, not a plugin: it knows neither logs nor rows, and nothing of the kernel but ``spi``. LMDB is
imported on first use. ADR 32 says why it stands here."""
