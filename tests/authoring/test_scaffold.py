from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from harness.authoring.scaffold import KINDS, SUFFIX, Kind, create
from harness.errors import ConfigError, StoreError

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
    with pytest.raises(ConfigError, match=rf"{taken} exists already; choose another name"):
        create("new-thing", tmp_path)
    assert [path.name for path in tmp_path.rglob("*")] == [taken]


def test_a_link_that_leads_nowhere_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "new_thing").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="exists already"):
        create("new-thing", tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot create .*file/new_thing: "):
        create("new-thing", tmp_path / "file")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["new-thing", LONG])
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_project_passes_its_own_tests_ruff_and_pyright(kind: Kind, name: str, tmp_path: Path) -> None:
    folder = create(name, tmp_path, kind).folder
    for command in (
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error"],
        ["ruff", "format", "--check", "."],
        ["ruff", "check", "--select", "E,F,I,UP,B,SIM,C90,ASYNC,RUF,PERF", "--ignore", "E501", "."],
        ["pyright", "--pythonpath", sys.executable, "."],
    ):
        tool = (
            command if command[0] == sys.executable else [str(Path(sys.executable).parent / command[0]), *command[1:]]
        )
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(tool, cwd=folder, capture_output=True, text=True, timeout=120, env=environ, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


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
