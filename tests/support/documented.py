"""Parse pages and the comments of configuration files into steps: the commands and Python that a reader types, the
files to save, the output that a page shows. Runs nothing; `documented_session` does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LANGUAGES = {"", "bash", "json", "python", "report", "text", "toml", "yaml"}
"""Of fenced blocks. Commands stand in `bash` blocks and nowhere else; `json`, `toml` and `yaml` without "Save this as"
are excerpts."""

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<language>[\w-]*)\s*$")
_ANY_FENCE = re.compile(r"^[\s>*-]*(?:\d+\.\s*)?(?:```|~~~|<pre)")
_COMMENT = re.compile(r"\s+# .*$")
_SAVED = re.compile(r"(?:[Ss]ave|[Pp]ut) this (?:as )?`(?P<name>[\w./-]+)`")
_IN_COMMENT = re.compile(r"^#\s+(?P<command>(?:bench|make|pip) .+)$")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_HERE = re.compile(r"(?<!<)<<-?\s*(['\"]?)(?P<end>[A-Za-z]\w*)\1")
"""The end marker of a here-document; `<<<` begins none."""
_COMMAND = re.compile(r"^\s*(?:\$ |[A-Z_]+=\S* )*(?:\$ |(?:bench|curl|export|make|pip|python3?|source|uv) \S)")
_INDENTED = re.compile(r"^(?: {4}|\t)")


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
    block: int = 0
    """The first line of its block."""

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


def hidden_commands(path: Path) -> list[str]:
    """Commands where `steps` does not find them: in blocks that are not `bash`, and in indented text."""
    found = list[str]()
    inside = set[int]()
    for block in blocks(path):
        lines = dict(enumerate(block.text.splitlines(), block.line))
        inside |= {block.line - 1, *lines, block.line + len(lines)}
        if block.language not in LANGUAGES:
            found.append(f"{block.page}:{block.line - 1}: a block of {block.language!r}")
        if block.language in ("", "text", "report"):
            found += [f"{block.page}:{number}: {line}" for number, line in lines.items() if _COMMAND.match(line)]
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        indented = _INDENTED.match(line) and _COMMAND.match(line)
        if number not in inside and (indented or _ANY_FENCE.match(line)):
            found.append(f"{name_of(path)}:{number}: {line.strip()}")
    return found


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
    """Its path in the repository; of a file elsewhere, its name."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name


def _is_made(path: Path) -> bool:
    """Whether a file is a tool's or a run's, not ours."""
    parts = path.relative_to(ROOT).parts
    return parts[0] in {"outputs", "dist", "build"} or any(part.startswith(".") for part in parts)


def _of(block: Block) -> Iterator[Step]:
    saved = _SAVED.search(block.before)
    if block.language == "bash":
        yield from _commands(block)
    elif saved is not None and block.language:
        yield Step(block.page, block.line, "file", block.text, saved["name"], block.line)
    elif block.language == "python":
        yield Step(block.page, block.line, "python", block.text, block=block.line)
    elif block.language in ("", "text"):
        yield Step(block.page, block.line, "shown", block.text, block=block.line)


def _commands(block: Block) -> Iterator[Step]:
    """The commands of a block, each with the lines that continue it or that it reads (`<<END`)."""
    whole, end = "", ""
    for number, line in enumerate(block.text.splitlines(), block.line):
        whole += line + "\n"
        if not end and (begun := _HERE.search(line)):
            end = begun["end"]
        elif line.strip() == end:
            end = ""
        if end or line.endswith("\\"):
            continue
        text, whole = whole.strip(), ""
        if text and not text.startswith("#"):
            yield Step(block.page, number, "command", text, block=block.line)
    assert not whole, f"{block.page}:{block.line}: the last command of the block does not end"


def _of_config(path: Path) -> list[Step]:
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    found = ((number, _IN_COMMENT.match(line)) for number, line in lines)
    page = name_of(path)
    return [Step(page, number, "command", match["command"], block=number) for number, match in found if match]


def bare(command: str) -> str:
    """A command without its comment."""
    return _COMMENT.sub("", command)


def operators(command: str) -> list[str]:
    """The words of a command line that may hide the exit code of a part of it."""
    words = shlex.shlex(bare(command), posix=True, punctuation_chars=";&|")
    words.whitespace_split = True
    return [word for word in words if word in ("!", ";", "&", "||", ";;", "|&", "exit", "if", "until", "while", "{")]
