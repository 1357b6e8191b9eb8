"""A picture as SVG inside a page: named for screen readers, in the page's colours and fonts, with few digits."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT, PAPER = "#010101", "#020202", "#030303"
SERIES = tuple(f"#c0000{place}" for place in range(8))
COLOURS = {  # what matplotlib draws with -> what the page's style sheet makes of it, in light and dark
    INK: "var(--ink)",
    "#000000": "var(--ink)",
    FAINT: "var(--faint)",
    PAPER: "var(--paper)",
    **{colour: f"var(--series-{place})" for place, colour in enumerate(SERIES)},
}
DASHES = ("-", "--", "-.", ":") * 2  # so that lines are told apart without their colours
NAMESPACE = "http://www.w3.org/2000/svg"
HREF = "{http://www.w3.org/1999/xlink}href"
NO_METADATA: Any = dict.fromkeys(("Date", "Creator", "Format", "Type"))
NUMBER = re.compile(r"-?\d+\.\d+")
REFERENCE = re.compile(r"#([\w-]+)")
ILLEGAL = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML and HTML


def inline(
    draw: Callable[[Figure], None], name: str, title: str, description: str, size: tuple[float, float]
) -> str:
    """Return what `draw` puts on a figure of `size` inches as an `svg` element for a page.

    Args:
        name: unique on the page; the ids in the picture begin with it.
        title: its name for screen readers; `description`: what it shows, in words.
    """
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # the same figures give the same page
        "text.parse_math": False,  # a name may have dollar signs
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.edgecolor": FAINT,
        "axes.formatter.useoffset": False,
        "grid.color": FAINT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=SERIES) + cycler(linestyle=DASHES),
        "path.simplify": False,  # which would take the dots for nothing
    }
    with rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # which the reader's fonts may have
        figure, out = Figure(figsize=size, layout="constrained"), io.BytesIO()
        draw(figure)
        figure.savefig(out, format="svg", transparent=True, metadata=NO_METADATA)
    root = ElementTree.fromstring(ILLEGAL.sub("\ufffd", out.getvalue().decode()))
    _clean(root)
    _rename(root, name)
    for tag, text in (("desc", description), ("title", title)):
        words = ElementTree.Element(f"{{{NAMESPACE}}}{tag}", id=f"{name}-{tag}")
        words.text = ILLEGAL.sub("\ufffd", text)
        root.insert(0, words)
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-desc",
    }
    ElementTree.register_namespace("", NAMESPACE)
    return ElementTree.tostring(root, encoding="unicode")


def _clean(root: ElementTree.Element) -> None:
    """Leave out what would style the whole page, fonts, and digits that nobody sees."""
    for parent in [*root.iter()]:
        for child in [*parent]:
            if child.tag in (f"{{{NAMESPACE}}}style", f"{{{NAMESPACE}}}metadata"):
                parent.remove(child)
        parent.text, parent.tail = (text.strip() if text else None for text in (parent.text, parent.tail))
        for name in ("d", "x", "y", "transform", "width", "height"):
            if name in parent.attrib:
                short = NUMBER.sub(
                    lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), parent.attrib[name]
                )
                parent.attrib[name] = re.sub(r"\s*([A-Zz])\s*", r"\1", short) if name == "d" else short
        if style := parent.attrib.get("style"):
            style = re.sub(r"font-(family|stretch):[^;]*(; *|$)", "", style)
            style = re.sub(r"font:[^;]*?([\d.]+px)[^;]*", r"font-size:\1", style)
            style = re.sub("#[0-9a-f]{6}", lambda match: COLOURS.get(match[0], match[0]), style)
            parent.attrib["style"] = style.replace("; ", ";").replace(": ", ":")


def _rename(root: ElementTree.Element, name: str) -> None:
    """Keep the ids that something refers to, and make them unique on the page."""
    for element in root.iter():
        if HREF in element.attrib:
            element.attrib["href"] = element.attrib.pop(HREF)
    referring = ("href", "clip-path", "style")
    texts = [element.attrib.get(attribute, "") for element in root.iter() for attribute in referring]
    own = {element.attrib["id"] for element in root.iter() if "id" in element.attrib}
    known = own.intersection(target for text in texts for target in REFERENCE.findall(text))
    for element in root.iter():
        if (old := element.attrib.pop("id", "")) in known:
            element.attrib["id"] = f"{name}-{old}"
        for attribute in referring:
            if attribute in element.attrib:
                element.attrib[attribute] = REFERENCE.sub(
                    lambda match: f"#{name}-{match[1]}" if match[1] in known else match[0],
                    element.attrib[attribute],
                )
