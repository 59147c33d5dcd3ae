"""Conversion of matplotlib's SVG for the page, with a list of allowed elements and attributes. Removes styles (the
page's policy forbids them) and metadata, makes names unique per figure, and replaces colours by CSS classes, which the
page defines for light and dark mode."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from harness.report.page.markup import Html, tag

COLOURS = {
    "ink": "#0f0f01", "muted": "#0f0f02", "grid": "#0f0f03",
    **{f"c{number}": f"#0f0f1{number}" for number in range(8)},
}  # fmt: skip
"""Placeholder colours for drawing; the page's style sets the real ones."""

_NAMES = {value: name for name, value in COLOURS.items()}

_ELEMENTS = frozenset({"svg", "g", "path", "use", "defs", "clipPath", "rect", "text", "tspan"})

_ATTRIBUTES = frozenset(
    {
        "d", "x", "y", "width", "height", "transform", "viewBox", "clip-path", "fill", "stroke", "stroke-width",
        "stroke-linejoin", "stroke-linecap", "stroke-dasharray", "stroke-dashoffset", "stroke-opacity", "fill-opacity",
        "opacity", "text-anchor", "font-size", "font-weight",
    }
)  # fmt: skip

_PROPERTIES = _ATTRIBUTES - {"d", "x", "y", "width", "height", "transform", "viewBox"}
"""Properties of a `style` that become attributes."""

_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
_SIZE = re.compile(r"([\d.]+)px")
_REFERENCE = re.compile(r"url\(#([\w-]+)\)|#([\w-]+)")


def fitted(drawn: str, title: str, prefix: str) -> Html:
    """Convert matplotlib's SVG to markup for the page.

    Args:
        drawn: The whole SVG document.
        title: Description for screen readers.
        prefix: Prefix of names inside the figure; must be unique on the page.
    """
    root = ElementTree.fromstring(drawn)
    named = {match for element in root.iter() for match in _references(element)}
    inner = [_element(child, named, prefix) for child in root]
    box = " ".join(_short(part) for part in root.get("viewBox", "0 0 1 1").split())
    return tag("svg", *inner, viewBox=box, role="img", aria_label=title, class_="plot", stroke_linejoin="round")


def _references(element: ElementTree.Element) -> Iterator[str]:
    """Names of other elements that an element refers to."""
    for key, value in element.attrib.items():
        if _local(key) in ("href", "clip-path") and (match := _REFERENCE.fullmatch(value.strip())):
            yield match[1] or match[2]


def _element(element: ElementTree.Element, named: set[str], prefix: str) -> Html | None:
    kind = _local(element.tag)
    if kind not in _ELEMENTS:
        return None
    attributes = dict(_attributes(element, named, prefix))
    children = [_element(child, named, prefix) for child in element]
    if kind in ("g", "defs") and not any(children):
        return None
    words = element.text if kind in ("text", "tspan") else None
    return tag(kind, words, *children, **attributes)


def _attributes(element: ElementTree.Element, named: set[str], prefix: str) -> Iterator[tuple[str, str]]:
    classes: list[str] = []
    for key, value in _split_style(element):
        if key == "id":
            if value in named:
                yield "id", f"{prefix}{value}"
        elif key in ("href", "clip-path"):
            if match := _REFERENCE.fullmatch(value.strip()):
                name = f"#{prefix}{match[1] or match[2]}"
                yield key, name if key == "href" else f"url({name})"
        elif key in ("fill", "stroke") and value.lower() in _NAMES:
            classes.append(f"{key[0]}-{_NAMES[value.lower()]}")
        elif key in _ATTRIBUTES:
            yield key, _DECIMALS.sub(lambda found: _short(found[0]), " ".join(value.split()))
    if classes:
        yield "class", " ".join(classes)


def _split_style(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Attributes of an element, including those in `style`."""
    for key, value in element.attrib.items():
        if _local(key) != "style":
            yield _local(key), value
    for part in element.get("style", "").split(";"):
        key, _, value = (word.strip() for word in part.partition(":"))
        if key == "font" and (size := _SIZE.search(value)):
            yield "font-size", size[1]
        elif key == "font-size":
            yield key, value.removesuffix("px")
        elif key in _PROPERTIES:
            yield key, value


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _short(number: str) -> str:
    return f"{round(float(number), 2):g}" if abs(float(number)) < 1e5 else number
