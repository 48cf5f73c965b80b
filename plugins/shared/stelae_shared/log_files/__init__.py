"""What the log engines have in common: durable directories, space prepared beforehand, one write for many buffers.

A library for plugins, not a plugin: it knows no format, and nothing of the kernel but ``spi``. ADR 42 says why it
stands here."""
