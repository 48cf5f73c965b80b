"""Code that the engines on LMDB share: it opens, uses, extends, checks and marks an environment.

This is a library for plugins and not a plugin. It knows neither logs nor rows, and of the kernel it imports only
``spi``. LMDB is imported on first use. ADR 32 gives the reasons."""
