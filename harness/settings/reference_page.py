"""Tables of the reference page of settings, generated from the table in `schema`. `python -m
harness.settings.reference_page PAGE` rewrites them in the page; a test checks that the checked-in page is current."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from harness.settings.checks import NONE_WORD
from harness.settings.schema import GROUPS, SETTINGS, SHARED, SHORTCUTS, Setting
from harness.settings.values import takes_none

_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


def settings_page(page: str) -> str:
    """Return `page` with the text of each block `<!-- generated: NAME --> … <!-- end -->` brought up to date."""
    blocks = {group: _group_table(group) for group in GROUPS}
    rows = [f"| {_flags(each.flags)} | {each.kind} | {_cell(each.doc)} |" for each in SHORTCUTS]
    blocks |= {"shortcuts": _table("flag | type | what", rows), "shared": ", ".join(f"`{key}`" for key in SHARED)}
    return _BLOCK.sub(lambda found: f"{found[1]}{blocks[found[2]]}{found[3]}", page)


def _group_table(group: str) -> str:
    rows: list[str] = []
    for setting in SETTINGS:
        if setting.group == group:
            key = f"`{setting.key}`" + "".join(f" (`{alias}`)" for alias in setting.door.aliases)
            flags = _flags((*setting.door.flags, *setting.door.off)) if setting.door.flags else "TARGET"
            kind = setting.door.kind
            if kind in ("integer", "number") and takes_none(setting):
                kind = f'{kind} or `"{NONE_WORD}"`'
            rows.append(f"| {key} | {flags} | {kind} | {_default(setting)} | {_cell(setting.doc)} |")
    return _table("key | flag | type | default | what", rows)


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([f"| {head} |", f"|{'---|' * (head.count('|') + 1)}", *rows])


def _flags(names: tuple[str, ...]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _default(setting: Setting) -> str:
    if setting.door.derived:
        return f"from {' and '.join(f'`{name}`' for name in setting.door.derived.split(' and '))}"
    if setting.key == "env_id":
        return "required"
    value = setting.default
    if value is None:
        return NONE_WORD
    if isinstance(value, bool):
        return str(value).lower()
    return "empty" if value in ((), {}) else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(settings_page(path.read_text(encoding="utf-8")), encoding="utf-8")
