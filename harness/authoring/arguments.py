"""Arguments of an environment's `load_environment`, read from its source code. The environment is not imported, so its
arguments can be shown before its dataset is downloaded, and even if it fails to load."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.syntax import parse
from harness.tools.docstrings import read_docstring

_SHOWN = 40
"""Maximum length of a constant whose value is shown instead of its name; for longer ones, the name is shown."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of `load_environment`."""

    name: str
    """Name of the argument, with the stars of `*args` and `**kwargs`."""
    type: str
    """Type annotation as written; "" if there is none."""
    default: str | None
    """Source code of the default; None if the argument is required."""
    description: str = ""
    """Description of the argument, from the function's docstring."""


@dataclass(frozen=True, slots=True)
class LoaderFunction:
    """The function that builds an environment."""

    file: Path
    line: int
    arguments: tuple[Argument, ...]
    description: str
    """The docstring without its sections (`Args:`, …)."""


def find_loader(files: Iterable[Path], function: str) -> LoaderFunction | None:
    """Find the definition of `function` in `files`.

    Args:
        files: Python files; files nearer to the top of the package are searched first.
        function: Name of the function.

    Returns:
        The parsed definition; None if no file defines the function at its top level.
    """
    for file in sorted(files, key=lambda path: (len(path.parts), path.name != "__init__.py", path)):
        try:
            text = file.read_bytes()
            tree = parse(text) if function.encode() in text else None
        except (OSError, SyntaxError, ValueError):
            continue
        for node in _definitions(tree.body if tree else ()):
            if node.name == function:
                documented = read_docstring(ast.get_docstring(node))
                constants = _constants(tree.body if tree else ())
                arguments = tuple(_arguments(node.args, documented.parameters, constants))
                return LoaderFunction(file, node.lineno, arguments, documented.description)
    return None


def _definitions(body: Sequence[ast.stmt]) -> Iterable[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Top-level functions of a module, including those inside a `try` or `if`."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.If | ast.Try):
            yield from _definitions([*node.body, *node.orelse])


def _constants(body: Sequence[ast.stmt]) -> dict[str, ast.Constant]:
    """Module-level names whose value is a constant of at most `_SHOWN` characters."""
    found: dict[str, ast.Constant] = {}
    for node in body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node.value, ast.Constant) and len(repr(node.value.value)) <= _SHOWN:
            found.update({target.id: node.value for target in targets if isinstance(target, ast.Name)})
    return found


def _arguments(
    given: ast.arguments, described: dict[str, str], constants: dict[str, ast.Constant]
) -> Iterable[Argument]:
    positional = [*given.posonlyargs, *given.args]
    missing = len(positional) - len(given.defaults)
    defaults: list[ast.expr | None] = [None] * missing + list(given.defaults)

    def argument(node: ast.arg, default: ast.expr | None) -> Argument:
        if isinstance(default, ast.Name):
            default = constants.get(default.id, default)
        shown = None if default is None else _source(default)
        return Argument(node.arg, _source(node.annotation), shown, described.get(node.arg, ""))

    for node, default in zip(positional, defaults, strict=True):
        yield argument(node, default)
    if given.vararg:
        yield Argument(f"*{given.vararg.arg}", _source(given.vararg.annotation), "")
    for node, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield argument(node, default)
    if given.kwarg:
        text = described.get(given.kwarg.arg, "")
        yield Argument(f"**{given.kwarg.arg}", _source(given.kwarg.annotation), "", text)


def _source(node: ast.expr | None) -> str:
    return "" if node is None else ast.unparse(node)
