"""The site: Markdown pages, and the API from the docstrings. Built offline, with every warning an error: make docs."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

_HERE = Path(__file__).parent
sys.path.insert(0, str(_HERE))  # for known_names and readable

project = "Quiesce"
version = release = tomllib.loads((_HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "known_names", "readable"]
exclude_patterns = ["schemas"]
nitpicky = True

html_theme = "furo"
html_title = "Quiesce"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_extra_path = ["schemas"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

myst_heading_anchors = 4

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # the signature has the types
python_display_short_literal_types = True
