from __future__ import annotations

from pathlib import Path

from harness.authoring.arguments import Argument, find_loader

SOURCE = '''
LIMIT = 10
PROMPT = "a prompt that is much too long to be shown in a table of arguments"

try:
    import nothing_of_this_name
except ImportError:
    pass


def load_environment(
    split: str, limit: int = LIMIT, prompt=PROMPT, *, seed: "int | None" = None, names=("a", "b"), **more: object
):
    """Build it.

    Whole words.

    Args:
        split: Which part.
        limit (int): How many,
            at most.
        **more: Whatever else.

    Returns:
        It.
    """
    raise RuntimeError("never called")
'''


def test_arguments_are_read_from_the_source_with_their_descriptions(tmp_path: Path) -> None:
    file = tmp_path / "env.py"
    file.write_text(SOURCE)
    loader = find_loader([file], "load_environment")
    assert loader is not None
    assert loader.description == "Build it.\n\nWhole words."
    assert loader.arguments == (
        Argument("split", "str", None, "Which part."),
        Argument("limit", "int", "10", "How many,\nat most."),
        Argument("prompt", "", "PROMPT"),
        Argument("seed", "'int | None'", "None"),
        Argument("names", "", "('a', 'b')"),
        Argument("**more", "object", "", "Whatever else."),
    )
    assert SOURCE.splitlines()[loader.line - 1] == "def load_environment("


def test_the_top_of_a_package_is_looked_at_first_and_unreadable_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def load_environment(:\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "a.py").write_text("def load_environment(wrong): ...\n")
    (tmp_path / "build.py").write_text("if True:\n    def load_environment(right=1): ...\n")
    loader = find_loader(tmp_path.rglob("*.py"), "load_environment")
    assert loader is not None
    assert (loader.file.name, [each.name for each in loader.arguments]) == ("build.py", ["right"])
    assert find_loader(tmp_path.rglob("*.py"), "other") is None
