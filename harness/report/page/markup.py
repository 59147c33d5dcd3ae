"""HTML generation with escaping, so that untrusted text cannot become a tag, an attribute or a script. Any value that
is not `Html` is treated as text. Also writes JSON for script elements."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from harness.core.redact import redactor
from harness.report.text import clean_block


class Html(str):
    """HTML that is trusted, so that it is not escaped again. Created only in this module."""

    __slots__ = ()


Child: TypeAlias = "Html | str | int | Iterable[Child] | None"
"""Content of an HTML element; None adds nothing."""

_VOID = frozenset({"br", "col", "hr", "input", "meta", "wbr"})

MANY = 6
"""A table with at least this number of columns is shown as one block per row on a narrow screen."""

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")


def text(value: object) -> Html:
    """Escape untrusted text for HTML; known secrets and control characters are removed."""
    return Html(html.escape(redactor.text(clean_block(str(value)), patterns=False)))


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Html:
    """Create an HTML element; its text content and attribute values are escaped.

    Args:
        name: Trusted name of the element.
        *children: Content; any value that is not `Html` is escaped.
        **attributes: By name; a trailing `_` is dropped and other `_` become `-`. None and False omit the attribute,
            True writes it without a value. Names starting with `on`, and `style`, are rejected, since the page's policy
            forbids them.
    """
    assert _NAME.fullmatch(name), name
    words = [name]
    for key, value in attributes.items():
        said = key.rstrip("_").replace("_", "-")
        assert _NAME.fullmatch(said) and not said.startswith("on") and said != "style", said
        if value is True:
            words.append(said)
        elif value is not None and value is not False:
            words.append(f'{said}="{text(value)}"')
    opening = f"<{' '.join(words)}>"
    if name in _VOID:
        return Html(opening)
    return Html(f"{opening}{join(children)}</{name}>")


def join(children: Child) -> Html:
    """Concatenate HTML and text; text is escaped."""
    if children is None:
        return Html("")
    if isinstance(children, Html):
        return children
    if isinstance(children, str | int):
        return text(children)
    return Html("".join(join(child) for child in children))


def table(
    head: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    *,
    label: str,
    words: Collection[int] = (0,),
    caption: str = "",
) -> Html:
    """Create an HTML table; one with many columns becomes one block per row on a narrow screen.

    Args:
        head: Column headers.
        rows: Cells of each row.
        label: Description for screen readers.
        words: Indexes of text columns; the other columns have numbers.
        caption: Caption above the table.
    """
    is_many = len(head) >= MANY
    names = [each if is_many and isinstance(each, str) and each else None for each in head]
    align = [None if number in words else "n" for number in range(len(head))]
    headers = [tag("th", cell, class_=align[number], scope="col") for number, cell in enumerate(head)]
    body: list[Html] = []
    for first, *others in rows:
        cells = (tag("td", cell, class_=align[n], data_head=names[n]) for n, cell in enumerate(others, 1))
        body.append(tag("tr", tag("th", first, scope="row"), cells))
    above = tag("caption", caption) if caption else None
    whole = tag("table", above, tag("thead", tag("tr", headers)), tag("tbody", body))
    kind = "scroll many" if is_many else "scroll"
    return tag("div", whole, class_=kind, tabindex="0", role="region", aria_label=label)


_SCRIPT_UNSAFE = {ord("<"): "\\u003c", ord(">"): "\\u003e", ord("&"): "\\u0026", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def script_json(value: object) -> Html:
    """Serialize JSON for the inside of `<script type="application/json">`, escaped so that it cannot end the element.

    Raises:
        ValueError: the value contains NaN or an infinity.
    """
    written = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # JSON has these characters only inside strings.
    return Html(written.translate(_SCRIPT_UNSAFE).encode("utf-8", "replace").decode())
