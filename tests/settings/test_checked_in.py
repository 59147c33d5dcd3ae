"""What is checked in: suites, the registry, the reference page and the guide."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import harness
from harness.settings.endpoints import load_registry
from harness.settings.packages import module_name
from harness.settings.reference_page import settings_page
from harness.settings.resolver import Resolution, resolve
from harness.settings.schema import SETTINGS, SHORTCUTS

REPOSITORY = Path(harness.__file__).parent.parent
SUITES = sorted((REPOSITORY / "configs" / "eval").glob("*.toml"))
OURS = ("gsm8k", "wordle", "alphabet-sort", "reverse-text")
CATALOGUE = tuple(
    sorted(path.parent.name.replace("_", "-") for path in REPOSITORY.glob("environments/*/pyproject.toml"))
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the checked-in configuration, with the environments importable."""
    shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
    for name in CATALOGUE:
        monkeypatch.syspath_prepend(str(REPOSITORY / "environments" / module_name(name)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(name: str, **flags: object) -> Resolution:
    return resolve(f"configs/eval/{name}.toml", flags)


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_every_suite_resolves(checkout: Path, path: Path) -> None:
    resolution = load(path.stem)
    assert resolution.runs
    assert resolution.notices == ()
    assert {run.settings.env.env_id for run in resolution.runs} <= {*CATALOGUE, "agent-eval"}


def test_the_catalogue_has_every_environment(checkout: Path) -> None:
    resolution = load("catalogue")
    assert sorted(run.settings.env.env_id for run in resolution.runs) == list(CATALOGUE)
    assert all(run.is_reference for run in resolution.runs)


def test_the_registry_is_read(checkout: Path) -> None:
    registry = load_registry(None, checkout)
    assert registry.file == "configs/endpoints.toml"
    assert [len(replicas) for replicas in registry.entries.values()] == [1, 1, 2]


def test_the_suite_leaves_the_model_open(checkout: Path) -> None:
    resolution = load("suite", model="reference/oracle")
    assert [run.settings.env.env_id for run in resolution.runs] == list(OURS)
    assert all(run.is_reference for run in resolution.runs)
    assert resolution.notices == ()
    assert resolution.runs[0].settings.env.env_args == {"split": "sample"}


def test_the_quickstart_needs_no_model_no_key_and_no_network(checkout: Path) -> None:
    resolution = load("quickstart")
    assert all(run.is_reference for run in resolution.runs)
    pairs = {(run.settings.env.env_id, run.settings.model.model) for run in resolution.runs}
    assert pairs == {(env, model) for env in OURS for model in ("reference/oracle", "reference/noisy?accuracy=0.8")}
    for run in resolution.runs:
        if run.settings.env.env_id == "gsm8k":
            assert run.settings.env.env_args == {"split": "sample"}
    work = sum(run.settings.env.num_examples * run.settings.env.rollouts_per_example for run in resolution.runs)
    assert work <= 300


def test_the_examples_show_what_they_say(checkout: Path) -> None:
    short, long = load("flat").runs
    assert long.settings.env.name == "reverse-text-long"
    assert long.settings.model.sampling_args == {"temperature": 0.7, "max_tokens": 1024}
    assert short.settings.model.sampling_args == {"temperature": 0.7}
    names = [run.settings.env.name for run in load("ablation").runs]
    assert len(names) == 6
    assert names[0] == "alphabet-sort[temperature=0.0, max_turns=1]"


def test_the_reference_page_is_current() -> None:
    page = (REPOSITORY / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_page(page), "run: make docs"
    for setting in SETTINGS:
        assert f"| `{setting.key}`" in page
    for flags in [(*each.door.flags, *each.door.off) for each in SETTINGS] + [each.flags for each in SHORTCUTS]:
        assert all(f"`{flag}`" in page for flag in flags)


def test_the_reference_page_is_rewritten_in_place(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    copy = tmp_path / "settings.md"
    copy.write_text(page.replace("| `rpm` |", "| `old` |").replace("`max_time`", ""), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "harness.settings.reference_page", str(copy)], check=True)
    assert copy.read_text(encoding="utf-8").count("`rpm`") == page.count("`rpm`")
    assert "| `old` |" not in copy.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of the guide."""
    found: list[str] = []
    inside: list[str] | None = None
    for line in (REPOSITORY / "docs" / "guides" / "suites.md").read_text(encoding="utf-8").splitlines():
        if inside is None and line == f"```{language}":
            inside = []
        elif inside is not None and line == "```":
            found.append("\n".join(inside))
            inside = None
        elif inside is not None:
            inside.append(line)
    return found


# The block with the typo is refused, as the guide shows: test_documented types it.
@pytest.mark.parametrize("text", [block for block in blocks("toml") if "num_exmaples" not in block])
def test_the_suites_in_the_guide_resolve(checkout: Path, text: str) -> None:
    assert tomllib.loads(text)
    (checkout / "guide.toml").write_text(text)
    assert len(resolve("guide.toml", {"model": "reference/oracle"}).runs) == 2
