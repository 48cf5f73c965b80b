"""Whether this command owes a JSON document, and whether one was printed.

With ``--json`` a command prints exactly one document, also when it fails. The report of an error therefore has to know
whether the command has begun its document on standard output."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class JsonDocument:
    """The document of the command that runs in this process.

    Attributes:
        asked: the command line has ``--json``.
        printed: a document, or its first part, was written to standard output.
    """

    asked: bool = False
    printed: bool = False

    def begin(self, *, asked: bool) -> None:
        """Begin a command, which has printed nothing."""
        self.asked, self.printed = asked, False

    @property
    def is_owed(self) -> bool:
        """Whether the command has to print a document and has not begun one."""
        return self.asked and not self.printed


DOCUMENT = JsonDocument()
"""The document of this process, which runs one command. Whatever writes one to standard output sets ``printed``."""
