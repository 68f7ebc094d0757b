"""The documentation site. `make docs` builds it without network, and every warning is an error."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from scfs import __version__  # noqa: E402

project, author = "scfs", "the authors of scfs"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "index_tree", "mathml", "reference"]
exclude_patterns = ["_ext"]
nb_execution_mode = "off"  # the notebook is committed with its outputs; tests/docs/test_notebook.py runs it

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # the anchors that GitHub gives to headings
html_math_renderer = "mathml"

smartquotes = False  # they would turn --flag into an en dash
default_role = "code"  # docstrings have single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
# Types of other projects, whose documentation is elsewhere, and type variables.
nitpick_ignore_regex = [("py:.*", r"(torch|pathlib|collections|PIL|scfs\.backbones|scfs\.preprocessing)\..*")]

html_theme = "furo"
html_title = f"scfs {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
