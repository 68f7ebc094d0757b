"""Renders formulas as MathML, which browsers draw themselves: no LaTeX, no script, no network."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
PRIME = '<mo lspace="0" rspace="0">\N{PRIME}</mo>'
TAG = re.compile(r"\\tag\{(\d+)\}")  # the number of an equation, which docutils does not know


def _convert(node: nodes.Node, tex: str, *, as_block: bool) -> str:
    try:
        return tex2mathml(tex, as_block=as_block).replace("<mo>'</mo>", PRIME)
    except MathError as error:
        LOGGER.warning("%s in the formula %r", error, tex, location=node)
        return ""


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(_convert(node, node.astext(), as_block=False))
    raise nodes.SkipNode


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    tex = node.astext()
    formula = _convert(node, TAG.sub("", tex), as_block=True)
    number = TAG.search(tex)
    anchor = f' id="equation-{number[1]}"' if number else ""
    label = f'<span class="number">({number[1]})</span>' if number else ""
    translator.body.append(f'<div class="equation"{anchor}><div class="formula">{formula}</div>{label}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx, as `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
