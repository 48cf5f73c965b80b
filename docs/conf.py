"""Configuration of the documentation build; see ``_ext`` for what is generated from the code."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import stelae

project = "Stelae"
author = "The Stelae authors"
copyright = "The Stelae authors; Apache License 2.0"
version = release = stelae.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "stelae_reference", "stelae_diagrams"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Stelae {release}"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource", "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_type_aliases = {"Buffer": "Buffer", "Event": "Event", "Outcome": "Outcome"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
