"""The ratchet: figures of the repository that may only go down.

``python -m tests.tidy.ratchet`` lowers ``ratchet.json`` to what the repository has reached. It never raises a figure.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.tidy import functions, words

RATCHET = Path(__file__).parent / "ratchet.json"


def recorded() -> dict[str, int]:
    """The figures that the repository has reached so far."""
    return json.loads(RATCHET.read_text())


def main() -> None:
    """Lower the recorded figures."""
    now = functions.figures(functions.measured()) | words.figures(words.found_in_files())
    before = recorded()
    lowered = {name: min(now[name], before.get(name, now[name])) for name in now}
    RATCHET.write_text(json.dumps(lowered, indent=2) + "\n")
    print(f"measured {now}, recorded {lowered}")


if __name__ == "__main__":
    main()
