from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import nursery
import pytest

from harness.authoring.scaffold import KINDS, SUFFIX, Kind, create
from harness.core.errors import ConfigError, StoreError

ROOT = Path(__file__).parents[2]
TEMPLATES = ROOT / "harness/authoring/templates"
LONG = "a-name-of-fifty-letters-is-as-long-as-names-can-be"


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_has_all_its_files_and_no_placeholder_is_left(kind: Kind, tmp_path: Path) -> None:
    created = create("org/new-thing", tmp_path / "a" / "b", kind)
    assert created.folder == tmp_path / "a" / "b" / "new_thing"
    assert created.files == (
        "new_thing/__init__.py", "README.md", "tests/test_new_thing.py", ".gitignore", "pyproject.toml",
    )  # fmt: skip
    there = {str(path.relative_to(created.folder)) for path in created.folder.rglob("*") if path.is_file()}
    assert there == set(created.files)
    for path in created.files:
        assert "@" not in (created.folder / path).read_text().replace("@pytest", "").replace("@stop", ""), path
    project = tomllib.loads((created.folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "new-thing"
    assert project["project"]["entry-points"]["harness.environments"] == {"new-thing": "new_thing:load_environment"}
    assert set(project["tool"]["harness"]["eval"]) == {"num_examples", "rollouts_per_example"}
    assert [path.name for path in created.folder.parent.iterdir()] == ["new_thing"]
    assert created.folder.stat().st_mode & 0o055 == 0o055


def test_a_folder_in_front_of_the_name_is_not_taken_for_an_organisation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("sub", "environments"):
        (tmp_path / folder).mkdir()
    with pytest.raises(ConfigError, match="use --path sub for the folder sub, or the bare name new-thing"):
        create("sub/new-thing", Path("environments"))
    assert create("environments/new-thing", Path("environments")).folder == Path("environments/new_thing")


@pytest.mark.parametrize("taken", ["new_thing", "new-thing"])
def test_an_existing_folder_is_left_alone(taken: str, tmp_path: Path) -> None:
    (tmp_path / taken).mkdir()
    with pytest.raises(ConfigError, match=rf"{taken} already exists; choose another name"):
        create("new-thing", tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == [taken]


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "new_thing").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="already exists"):
        create("new-thing", tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot create .*file/new_thing: "):
        create("new-thing", tmp_path / "file")


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A new project of every kind, under a short name and under the longest, in folders beside one another."""
    folder = tmp_path_factory.mktemp("new")
    return [create(name, folder / kind, kind).folder for kind in KINDS for name in ("new-thing", LONG)]


@pytest.mark.slow
def test_a_new_project_passes_its_own_tests(projects: list[Path]) -> None:
    assert len(projects) == 2 * len(KINDS)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # an author has pytest, and none of the plugins that are here
    for folder in [*projects[::2], projects[-1]]:  # every kind, and a long name
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"]
        done = nursery.run(command, cwd=folder, environ=environ)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)


def check(cwd: Path, program: str, *arguments: str) -> str:
    command = [str(Path(sys.executable).parent / program), *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_new_project_passes_ruff(projects: list[Path]) -> None:
    for folder in projects:
        check(folder, "ruff", "format", "--check", ".")
        check(folder, "ruff", "check", "--select", "E,F,I,UP,B,SIM,C90,ASYNC,RUF,PERF", "--ignore", "E501", ".")


@pytest.mark.slow
def test_a_new_project_passes_pyright(projects: list[Path]) -> None:
    """One start of pyright, which takes seconds, with every project a root of its own."""
    parent = projects[0].parents[1]
    names = [folder.relative_to(parent).as_posix() for folder in projects]
    settings = {"include": names, "executionEnvironments": [{"root": name} for name in names]}
    (parent / "pyrightconfig.json").write_text(json.dumps(settings))
    report = json.loads(check(parent, "pyright", "--pythonpath", sys.executable, "--outputjson"))
    assert report["generalDiagnostics"] == []
    files = [path for folder in projects for path in folder.rglob("*.py")]
    assert report["summary"]["filesAnalyzed"] == len(files) == 2 * len(projects)


@pytest.mark.slow
def test_the_wheel_of_bench_carries_the_templates(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.endswith(SUFFIX)}
    there = {str(path.relative_to(ROOT)) for path in TEMPLATES.rglob(f"*{SUFFIX}")}
    assert inside == there
    assert len(there) == 2 + 3 * len(KINDS)
