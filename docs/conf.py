"""Settings of Sphinx. `make docs` builds the pages; what they take from the sources is made by tools/documentation."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import dmlvk  # noqa: E402
from tools.documentation import links, made_pages, references  # noqa: E402

project = "dmlvk"
author = copyright = "The dmlvk authors"
version = release = dmlvk.__version__
html_title = f"dmlvk {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = [
    "made/kernels.md",
    "made/commands.md",
    "made/operators.md",
    "made/operator_speed.md",
    "made/whole_models.md",
    "made/onnx_operators.md",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

html_theme = "furo"
html_static_path = ["static"]
# Sphinx does not see pictures in HTML: the one that has a dark form beside it.
html_extra_path = ["demo.png", "demo_dark.png"]
html_css_files = ["pages.css"]
html_js_files = ["search.js"]
html_search_scorer = str(ROOT / "docs" / "static" / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
# No links to edit a page: some are made of the sources, and have no file in the repository.
html_theme_options = {"top_of_page_buttons": []}

myst_heading_anchors = 4

# The docstrings give types; the signatures would repeat them, five times where a function has overloads.
autodoc_typehints = "none"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_mock_imports = ["torch"]
# Docstrings have single backticks around code.
default_role = "code"
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_preprocess_types = True
napoleon_type_aliases = references.TYPES
nitpick_ignore_regex = references.OF_OTHERS


def setup(application: object) -> None:
    """Called by Sphinx."""
    made_pages.write()
    links.connect(application)
    references.connect(application)
