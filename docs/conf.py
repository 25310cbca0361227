"""Settings of the documentation's site: `make docs` builds it with Sphinx."""

from __future__ import annotations

import sys
from pathlib import Path

import augmask

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "augmask"
author = "The augmask maintainers"
copyright = "the augmask maintainers, Apache-2.0"
release = version = augmask.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "command_line",
    "repository_links",
]
exclude_patterns = ["gallery/*.py", "_ext", "_static"]

# `--option` stays two hyphens
smartquotes = False

# GitHub's anchors, so that links work in both places
myst_heading_anchors = 4
myst_enable_extensions = ["deflist", "fieldlist"]

# A word in single backticks is a link where there is a target, and code elsewhere.
default_role = "py:obj"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"show-inheritance": False}
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = False
napoleon_custom_sections = []
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "augmask"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_domain_indices = False
html_show_sphinx = False
# Everything stays on the reader's machine: system fonts, search in the browser.
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b6e6e",
        "color-brand-content": "#0b6e6e",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fc9c9",
        "color-brand-content": "#5fc9c9",
    },
}
pygments_style = "friendly"
pygments_dark_style = "monokai"
