"""Code that the log engines share: durable directories, files prepared in advance, term runs, vectored writes, markers.

This is a library for plugins and not a plugin. It knows no segment format, and of the kernel it imports only ``spi``.
ADR 42 gives the reasons."""
