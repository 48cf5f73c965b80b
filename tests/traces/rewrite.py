"""``python -m tests.traces.rewrite`` records the outcomes of every trace as they are now.

Review the difference: a trace is a specification, and a changed outcome is a changed behaviour.
"""

from __future__ import annotations

from tests.traces.interpreter import rewritten, traces


def main() -> None:
    """Rewrite every trace in place."""
    for path in traces():
        before = path.read_text()
        after = rewritten(before)
        if after != before:
            path.write_text(after)
            print(f"rewrote {path.name}")


if __name__ == "__main__":
    main()
