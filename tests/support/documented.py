"""What the documentation tells its readers to type, and what it shows them: found in pages and in the comments of
configuration files. Runs nothing; `documented_session` does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SHELLS = {"bash", "sh", "shell", "console"}

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w-]*)\s*$")
_COMMENT = re.compile(r"\s+# .*$")
_SAVED = re.compile(r"(?:[Ss]ave|[Pp]ut) this (?:as )?`(?P<name>[\w.]+)`")
_IN_COMMENT = re.compile(r"^#\s+(?P<command>(?:bench|make|pip) .+)$")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LOOSE = re.compile(r"^(?: {4}|\t)\s*(?:\$ )?(?:bench|make|pip) \S")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    """Of its first line of text, from 1."""
    language: str
    text: str
    before: str
    """The paragraph before it."""


@dataclass(frozen=True)
class Step:
    """One thing that a reader of a page does, or sees."""

    page: str
    line: int
    kind: str
    """`command`, `python`, `file` or `shown`."""
    text: str
    name: str = ""
    """Of a file: what it is saved as."""

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Every page of the repository."""
    found = [path for path in ROOT.rglob("*.md") if not _is_made(path)]
    assert found, ROOT
    return sorted(found)


def configs() -> list[Path]:
    """Every configuration that is checked in."""
    return sorted((ROOT / "configs").rglob("*.toml"))


def steps(path: Path) -> list[Step]:
    """What a page or a configuration has its readers do, from top to bottom."""
    return _of_config(path) if path.suffix == ".toml" else [step for block in blocks(path) for step in _of(block)]


def commands() -> list[Step]:
    """Every command of every page and configuration."""
    return [step for path in [*pages(), *configs()] for step in steps(path) if step.kind == "command"]


def blocks(path: Path) -> Iterator[Block]:
    """The fenced blocks of a page."""
    page, lines = name_of(path), path.read_text(encoding="utf-8").splitlines()
    start, language, fence, paragraph = 0, "", "", list[str]()
    for number, line in enumerate(lines, 1):
        match = _FENCE.match(line)
        if fence and match and match["ticks"] == fence and not match["language"]:
            yield Block(page, start, language, "\n".join(lines[start - 1 : number - 1]), " ".join(paragraph))
            fence, paragraph = "", []
        elif not fence and match:
            start, language, fence = number + 1, match["language"], match["ticks"]
        elif not fence:
            if line.strip() and number > 1 and not lines[number - 2].strip():
                paragraph = []
            if line.strip():
                paragraph.append(line.strip())
    assert not fence, f"{page}:{start}: the block is never closed"


def loose_commands(path: Path) -> list[str]:
    """Commands in indented blocks, where nothing says that they are commands."""
    inside = {line for block in blocks(path) for line in range(block.line, block.line + block.text.count("\n") + 1)}
    lines = path.read_text(encoding="utf-8").splitlines()
    return [
        f"{name_of(path)}:{number}: {line.strip()}"
        for number, line in enumerate(lines, 1)
        if number not in inside and _LOOSE.match(line)
    ]


def code(path: Path) -> Iterator[tuple[int, str]]:
    """Everything on a page that is set as code, with its line: blocks and spans."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for block in blocks(path):
        yield block.line, block.text
        for number in range(block.line - 1, block.line + block.text.count("\n")):
            lines[number] = ""
    for number, line in enumerate(lines, 1):
        for match in _CODE_SPAN.finditer(line):
            yield number, match[2]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _is_made(path: Path) -> bool:
    """Whether a file is a tool's or a run's, not ours."""
    parts = path.relative_to(ROOT).parts
    return parts[0] in {"outputs", "dist", "build"} or any(part.startswith(".") for part in parts)


def _of(block: Block) -> Iterator[Step]:
    saved = _SAVED.search(block.before)
    if block.language in SHELLS:
        yield from _commands(block)
    elif saved is not None and block.language:
        yield Step(block.page, block.line, "file", block.text, saved["name"])
    elif block.language == "python" and "load_dataset(" in block.text:
        yield Step(block.page, block.line, "python", block.text)
    elif block.language in ("", "text"):
        yield Step(block.page, block.line, "shown", block.text)


def _commands(block: Block) -> Iterator[Step]:
    """The commands of a block; where some lines begin with `$`, the others are what they print."""
    lines = block.text.splitlines()
    prompts = any(line.startswith("$ ") for line in lines)
    whole = ""
    for number, line in enumerate(lines, block.line):
        if not whole and prompts and not line.startswith("$ "):
            continue
        whole += line.removeprefix("$ ")
        if whole.endswith("\\"):
            whole = whole[:-1]
            continue
        text = _COMMENT.sub("", whole).strip()
        whole = ""
        if text and not text.startswith("#"):
            yield Step(block.page, number, "command", text)


def _of_config(path: Path) -> list[Step]:
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found = ((number, _IN_COMMENT.match(line)) for number, line in lines)
    page = name_of(path)
    return [Step(page, number, "command", _COMMENT.sub("", match["command"])) for number, match in found if match]
