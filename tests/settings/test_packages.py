"""Facts about environments without importing them. The slow tests build real wheels and install them, plainly and as
editable, under every interpreter that is at hand."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest
from tables import for_each_row

import harness
from harness.core.errors import ConfigError
from harness.settings.packages import find_environment, installed_environments, local_environments, module_name
from harness.settings.resolver import resolve

REPOSITORY = Path(harness.__file__).parent.parent


@for_each_row(("env_id", "module"), [("gsm8k", "gsm8k"), ("alphabet-sort", "alphabet_sort"), ("org/my-env", "my_env")])
def test_module_names(env_id: str, module: str) -> None:
    assert module_name(env_id) == module


def test_a_module_on_the_path_is_found_and_not_imported(here: Path) -> None:
    found = find_environment("toy-env")
    assert found is not None
    assert (found.module, found.dist_name, found.dist_version, found.defaults) == ("toy_env", None, None, {})
    assert found.source_files == (here.parent / "modules" / "toy_env.py",)
    assert "toy_env" not in sys.modules


def test_a_package_has_all_its_source_files(here: Path) -> None:
    package = here.parent / "modules" / "big_env"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "a.py", "inner/__init__.py", "inner/b.py", "data.json"):
        (package / name).write_text("raise RuntimeError\n")
    found = find_environment("big-env")
    assert found is not None
    names = [path.relative_to(package).as_posix() for path in found.source_files]
    assert names == ["__init__.py", "a.py", "inner/__init__.py", "inner/b.py"]


def test_what_is_installed_later_is_found_too(here: Path) -> None:
    modules = here.parent / "modules"
    os.utime(modules, ns=(0, 0))  # as one that was not changed for a while
    assert "late-env" not in installed_environments()
    (modules / "late_env-1.0.dist-info").mkdir()
    points = "[harness.environments]\nlate-env = toy_env\n"
    (modules / "late_env-1.0.dist-info" / "entry_points.txt").write_text(points)
    assert "late-env" in installed_environments()
    assert (found := find_environment("late-env")) is not None
    assert found.module == "toy_env"


def test_a_package_that_no_distribution_claims_is_found(here: Path) -> None:
    package = here.parent / "modules" / "own_env"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError\n")
    found = [find_environment("own-env") for _ in range(20)]
    assert {one and (one.module, one.dist_name) for one in found} == {("own_env", None)}


@pytest.mark.parametrize("name", ["nothing-there", "sys", "json", "os", "a.b", "", "1st", "x y"])
def test_what_is_no_environment(here: Path, name: str) -> None:
    assert find_environment(name) is None


def test_a_folder_of_that_name_is_no_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "empty_env").mkdir()
    monkeypatch.syspath_prepend(str(here))
    assert find_environment("empty-env") is None


def test_defaults_beside_a_module_count_only_under_its_own_name(here: Path) -> None:
    pyproject = here.parent / "modules" / "pyproject.toml"
    pyproject.write_text('[project]\nname = "toy.env"\n[tool.verifiers.eval]\nnum_examples = 7\n')
    (run,) = resolve("toy-env", {}).runs
    assert run.settings.env.num_examples == 7
    assert run.origins["env.num_examples"].layer == "package"
    assert run.origins["env.num_examples"].source == f"{pyproject}: tool.verifiers.eval.num_examples"
    (other,) = resolve("other-env", {}).runs
    assert other.settings.env.num_examples == 5


def test_our_table_comes_before_that_of_verifiers(here: Path) -> None:
    (here.parent / "modules" / "pyproject.toml").write_text(
        '[project]\nname = "toy-env"\n[tool.verifiers.eval]\nnum_examples = 7\n[tool.harness.eval]\nnum_examples = 8\n'
    )
    assert resolve("toy-env", {}).runs[0].settings.env.num_examples == 8


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("num_exmaples = 7", 'tool.harness.eval.num_exmaples: unknown key; did you mean "num_examples"?'),
        ('num_examples = "7"', 'tool.harness.eval.num_examples = "7": must be an integer'),
        ('env_id = "x"', "tool.harness.eval.env_id: the default settings of an environment cannot set the environment"),
        ("save_every = 7", "tool.harness.eval.save_every: unknown key"),
        ("[tool.harness.eval.env]\nnum_examples = 7", "tool.harness.eval.env: unknown key"),
    ],
)
def test_wrong_defaults_name_the_file(here: Path, line: str, expected: str) -> None:
    pyproject = here.parent / "modules" / "pyproject.toml"
    pyproject.write_text(f'[project]\nname = "toy-env"\n[tool.harness.eval]\n{line}\n')
    with pytest.raises(ConfigError) as caught:
        resolve("toy-env", {})
    assert str(caught.value).startswith(str(pyproject))
    assert expected in str(caught.value)


def test_local_projects_are_known_by_their_project_name(here: Path) -> None:
    for folder, text in (("one_env", '[project]\nname = "one-env"\n'), ("two", "not toml =")):
        (here / folder).mkdir()
        (here / folder / "pyproject.toml").write_text(text)
    assert local_environments(here) == {"one-env": here / "one_env", "two": here / "two"}
    assert local_environments(here / "nowhere") == {}
    assert list(installed_environments()) == sorted(installed_environments())


PACKAGE = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "{name}"
version = "1.2"
[project.entry-points."harness.environments"]
{name} = "{module}:load_environment"
[tool.harness.eval]
num_examples = {number}
[tool.hatch.build]
dev-mode-dirs = ["."]
[tool.hatch.build.targets.wheel]
only-include = ["{include}"]
[tool.hatch.build.targets.wheel.force-include]
"pyproject.toml" = "{shipped}"
"""

PROBE = """
import json, sys
from harness.settings.packages import find_environment, installed_environments
found = {}
for name in ("pack-env", "file-env", "flat-env"):
    one = find_environment(name)
    found[name] = one and [one.dist_name, one.dist_version, one.defaults, len(one.source_files), one.notice]
imported = [name for name in sys.modules if name.endswith("_env")]
print(json.dumps({"found": found, "installed": installed_environments(), "imported": imported}))
"""


def project(
    folder: Path, name: str, number: int, *, single: bool = False, shipped: str = "", exact: bool = False
) -> Path:
    """A buildable environment: a package that ships its pyproject.toml inside, or a single module."""
    module = name.replace("-", "_")
    root = folder / module
    root.mkdir()
    include = f"{module}.py" if single else module
    if single:
        (root / include).write_text("raise RuntimeError\n")
    else:
        (root / module).mkdir()
        (root / module / "__init__.py").write_text("raise RuntimeError\n")
    shipped = shipped or f"{module}/pyproject.toml"
    (root / "pyproject.toml").write_text(
        PACKAGE.format(
            name=name, module=module, number=number, include=include, shipped=shipped, exact=str(exact).lower()
        )
    )
    return root


def interpreters() -> list[str]:
    """This interpreter, and the others that we support where they can be found and started."""
    found = [sys.executable]
    for version in ("3.11", "3.12", "3.13"):
        pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python{version}"), reverse=True)
        candidates = [path for path in (shutil.which(f"python{version}"), *map(str, pyenv)) if path]
        if f"{sys.version_info.major}.{sys.version_info.minor}" != version:
            found += next(([path] for path in candidates if starts(path)), [])
    return found


def starts(path: str) -> bool:
    return subprocess.run([path, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def venv(folder: Path, interpreter: str) -> Path:
    subprocess.run([interpreter, "-m", "venv", "--without-pip", str(folder)], check=True, capture_output=True)
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str) -> None:
    # pip and hatchling are pure Python: the copies that this environment has serve every interpreter, without a network
    environment = {**os.environ, "PYTHONPATH": site.getsitepackages()[0]}
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", *options, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def probe(python: Path) -> dict[str, dict[str, object]]:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([str(python), "-c", PROBE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["imported"] == []
    return answer


@pytest.mark.slow
@pytest.mark.parametrize("interpreter", interpreters(), ids=lambda path: Path(path).name)
def test_wheels_and_editable_installs(tmp_path: Path, interpreter: str) -> None:
    projects = [
        project(tmp_path, "pack-env", 11),
        project(tmp_path, "file-env", 12, single=True, shipped="file_env-data/pyproject.toml"),
        # the layout of old: two wheels that both put a pyproject.toml at the top of site-packages
        project(tmp_path, "flat-env", 13, single=True, shipped="pyproject.toml"),
    ]
    expected = {
        "pack-env": ["pack-env", "1.2", {"num_examples": 11}, 1, None],
        "file-env": ["file-env", "1.2", {"num_examples": 12}, 1, None],
        "flat-env": ["flat-env", "1.2", {"num_examples": 13}, 1, None],
    }
    installed = venv(tmp_path / "installed", interpreter)
    pip(installed, *map(str, projects))
    answer = probe(installed)
    assert answer["found"] == expected
    assert answer["installed"] == sorted(expected)

    editable = venv(tmp_path / "editable", interpreter)
    pip(editable, *(part for each in projects for part in ("--editable", str(each))))
    assert probe(editable)["found"] == expected

    clobber = project(tmp_path, "last-env", 99, single=True, shipped="pyproject.toml")
    pip(installed, str(clobber))
    name, version, defaults, _, notice = probe(installed)["found"]["flat-env"]  # type: ignore[misc]
    assert (name, version, defaults) == ("flat-env", "1.2", {})
    assert "belongs to 'last-env'; reinstall flat-env to use them" in str(notice)


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        ("__editable___hook_env_1_2_finder.py", "MAPPING: dict[str, str] = {{'hook_env': '{code}'}}"),
        ("_editable_impl_hook_env.py", "F.map_module('hook_env', '{code}/__init__.py')"),
        ("hook_env.pth", "# a comment\nimport something\n{root}\n"),
    ],
)
def test_what_editable_installs_leave_behind(here: Path, monkeypatch: pytest.MonkeyPatch, hook: str, text: str) -> None:
    root = here / "hook_env"
    code = root / "hook_env"
    code.mkdir(parents=True)
    (code / "__init__.py").write_text("raise RuntimeError\n")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "hook.env-project"\n[tool.harness.eval]\nnum_examples = 9\n'
    )
    packages = here / "site-packages"
    info = packages / "hook_env_project-1.2.dist-info"
    info.mkdir(parents=True)
    (packages / hook).write_text(text.format(code=code, root=root))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hook-env-project\nVersion: 1.2\n")
    (info / "RECORD").write_text(f"{hook},sha256=x,1\nhook_env_project-1.2.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.syspath_prepend(str(root))
    found = find_environment("hook-env")
    assert found is not None
    assert (found.dist_name, found.dist_version) == ("hook-env-project", "1.2")
    assert found.defaults == {"num_examples": 9}
