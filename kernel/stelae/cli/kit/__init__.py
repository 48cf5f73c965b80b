"""Toolkit for commands: output, errors, progress, connection options. Plugins with commands may import it."""
