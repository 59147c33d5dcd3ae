"""Environments named by a path: what is one, what it is called, and where its defaults come from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.core.errors import EnvironmentNotFound
from harness.settings.packages import find_environment
from harness.settings.paths import environment_path, main_file, path_name
from harness.settings.resolver import resolve

Write = Callable[[str, str], Path]


def test_a_bare_word_is_never_a_path(here: Path, write: Write) -> None:
    write("gsm8k/gsm8k.py", "")
    assert environment_path("gsm8k", here) is None
    assert environment_path("./gsm8k", here) == here / "gsm8k"
    assert environment_path("org/gsm8k", here) is None
    write("org/gsm8k/gsm8k.py", "")
    assert environment_path("org/gsm8k", here) == here / "org/gsm8k"


@pytest.mark.parametrize(
    "words", ["./nothing.py", "nothing.py", "../nothing", "~/nothing-of-that-name", "/nothing/there"]
)
def test_a_path_that_leads_nowhere_is_refused_with_the_place_that_names_it(here: Path, words: str) -> None:
    with pytest.raises(
        EnvironmentNotFound,
        match=f"^bench run: {words}: no environment found, because this file or folder does not exist",
    ):
        resolve(words, {})


@pytest.mark.parametrize(
    ("file", "path", "called"),
    [
        ("envs/my_env.py", "envs/my_env.py", "my_env"),
        ("envs/my-env/my_env.py", "envs/my-env", "my-env"),
        ("envs/my-env/my_env/__init__.py", "envs/my-env", "my-env"),
        ("envs/my-env/src/my_env/__init__.py", "envs/my-env", "my-env"),
        ("envs/pack/__init__.py", "envs/pack", "pack"),
        ("envs/pack/__init__.py", "envs/pack/__init__.py", "pack"),
        ("envs/my_env.py", "envs/../envs/my_env.py", "my_env"),
    ],
)
def test_the_file_of_a_path_and_what_it_is_called(here: Path, write: Write, file: str, path: str, called: str) -> None:
    source = write(file, "raise RuntimeError('settings must not import an environment')")
    found = environment_path(f"./{path}", here)
    assert found is not None
    assert (main_file(found), path_name(found)) == (source, called)


@pytest.mark.parametrize(("file", "path"), [("envs/readme.md", "envs/readme.md"), ("envs/other.py", "envs")])
def test_what_holds_no_environment_is_refused(here: Path, write: Write, file: str, path: str) -> None:
    write(file, "")
    with pytest.raises(EnvironmentNotFound, match=r"(is not a Python file|contains none of envs\.py)"):
        find_environment(f"./{path}", here)


def test_a_run_by_path_is_called_by_its_last_part_and_takes_its_defaults(here: Path, write: Write) -> None:
    source = write("envs/my-env/my_env.py", "")
    write("envs/my-env/pyproject.toml", '[project]\nname = "my-env"\n[tool.harness.eval]\nnum_examples = 17\n')
    (run,) = resolve("./envs/my-env", {}).runs
    assert (run.env_id, run.settings.env.name, run.settings.env.env_id) == ("my-env", "my-env", "./envs/my-env")
    assert run.settings.env.num_examples == 17
    assert run.origins["env.num_examples"].source.startswith("envs/my-env/pyproject.toml")
    assert run.found is not None
    assert (run.found.module, run.found.source_files, run.found.dist_name) == ("my_env", (source,), None)


def test_paths_and_names_may_be_mixed_and_set_apart(here: Path, write: Write) -> None:
    write("high_low.py", "")
    first, second = resolve("./high_low.py,toy-env", {}, sets=["high_low:env.num_examples=3"]).runs
    assert (first.env_id, first.settings.env.num_examples) == ("high_low", 3)
    assert (second.env_id, second.settings.env.num_examples) == ("toy-env", 5)
    again = write("again.toml", first.to_toml())
    (repeated,) = resolve(again.name, {}).runs
    assert repeated.settings == first.settings
    assert repeated.env_id == "high_low"
