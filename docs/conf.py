"""The built docs: `make docs` writes the references from the code, then this site into `docs/_build`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from shared.version import __version__

project = "modeld"
copyright = "the modeld authors"  # noqa: A001  the name that Sphinx reads
version = release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block", "colon_fence"]
exclude_patterns = ["_build", "design/decisions"]
html_theme = "furo"
html_title = f"modeld {release}"
html_static_path = ["_static"]
html_show_sourcelink = False
html_copy_source = False
# broken links between pages are errors: the site is built with -W
nitpicky = True
