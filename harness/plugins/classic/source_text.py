"""Static analysis of Python source: uses of `verifiers` and its names, and the code without comments and strings.
`packages` and `generation` use the results."""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Iterable, Iterator

from harness.core.syntax import parse

NAME = "verifiers"

_ASKS = re.compile(r"^\s*(?:import|from)\s+verifiers\b|import_module\(\s*[\"']verifiers\b", re.MULTILINE)

_ASKING = frozenset({"hasattr", "getattr"})


@functools.lru_cache(maxsize=512)
def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # hide warnings about invalid escapes in an author's code
            return parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def asks(text: str) -> bool:
    """Return whether a Python file probably uses `verifiers`: its code contains the name, possibly in a string that may
    be a module name."""
    tree = _parsed(text)
    if tree is None:
        return bool(_ASKS.search(text))
    if NAME not in text:
        return False
    docs = _texts_for_readers(tree)
    return any(
        (isinstance(node, ast.Name) and node.id == NAME)
        or (isinstance(node, ast.Constant) and id(node) not in docs and _is_named(node.value))
        or (isinstance(node, ast.Import) and any(_is_named(alias.name) for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and not node.level and _is_named(node.module))
        for node in ast.walk(tree)
    )


def names_of_api(text: str) -> set[str]:
    """Return the names of `verifiers` that a Python file requires: `vf.NAME` and imports, without those used in
    `hasattr` or inside a `try`, which are optional. If the file uses `import *`, these are all names that it reads but
    does not define."""
    tree = _parsed(text)
    if tree is None:
        return set()
    aliases = {
        alias.asname or NAME
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == NAME
    }
    used: set[str] = set()
    unsure: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            used.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module in (NAME, f"{NAME}.types"):
            names = {alias.name for alias in node.names}
            used |= _unbound(tree) if "*" in names else names
        elif isinstance(node, ast.Call) and _called(node) in _ASKING and len(node.args) > 1:
            unsure.update(_texts(node.args[1:2]))
        elif isinstance(node, ast.Try):
            unsure.update(_tried(node))
    return used - unsure


def code_of(text: str) -> str:
    """Return source code without comments and without strings that cannot be dict keys; code that cannot be parsed is
    returned unchanged."""
    tree = _parsed(text)
    if tree is None:
        return text
    try:
        return ast.unparse(_Stripper().visit(parse(text)))
    except (ValueError, RecursionError):
        return text


class _Stripper(ast.NodeTransformer):
    """Empties strings in a syntax tree, except identifiers, which may be dict keys."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return ast.copy_location(ast.Pass(), node) if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        is_key = not isinstance(node.value, str | bytes) or (isinstance(node.value, str) and node.value.isidentifier())
        return node if is_key else ast.copy_location(ast.Constant(""), node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.expr:
        parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
        return ast.copy_location(ast.Tuple([self.visit(part) for part in parts], ast.Load()), node)


def _unbound(tree: ast.Module) -> set[str]:
    """Return the names that a Python file reads but never defines."""
    read: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
    return read - bound


def _tried(node: ast.Try) -> Iterator[str]:
    """Return the names that are imported or read inside a `try` statement."""
    for inner in (part for statement in node.body for part in ast.walk(statement)):
        if isinstance(inner, ast.ImportFrom):
            yield from (alias.name for alias in inner.names)
        elif isinstance(inner, ast.Attribute):
            yield inner.attr


def _texts_for_readers(tree: ast.Module) -> set[int]:
    """Return the ids of the syntax nodes of strings without effect, such as docstrings and code disabled by quotes."""
    return {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}


def _called(node: ast.Call) -> str:
    function = node.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _texts(nodes: Iterable[ast.expr]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _is_named(value: object) -> bool:
    return isinstance(value, str) and (value == NAME or value.startswith(f"{NAME}."))
