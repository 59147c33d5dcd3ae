from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.authoring.catalogue import catalogue
from harness.authoring.describe import describe
from harness.settings.packages import find_environment

RAISES = "raise RuntimeError('a list must not import an environment')\n"
LOADER = RAISES + "def load_environment(): ...\n"
EVAL = '[project]\nname = "{name}"\nversion = "1.0"\n[tool.harness.eval]\nnum_examples = 7\n'


def names(entries: Any) -> list[str]:
    return [entry.name for entry in entries]


def test_environments_are_found_by_entry_point_with_all_that_is_known(install: Any, tmp_path: Path) -> None:
    files = {"some_env/__init__.py": LOADER, "some_env/sub/__init__.py": "",
             "some_env/pyproject.toml": EVAL.format(name="some-dist")}  # fmt: skip
    site = install("some-dist", files, version="2.3", summary="It asks.", entry="some-env = some_env:load_environment")
    [entry] = [entry for entry in catalogue(tmp_path) if entry.name == "some-env"]
    assert asdict(entry) == {
        "name": "some-env", "status": "installed", "version": "2.3", "summary": "It asks.", "distribution": "some-dist",
        "module": "some_env", "path": str(site / "some_env"), "is_classic": False, "defaults": {"num_examples": 7},
        "problem": "",
    }  # fmt: skip
    assert "some_env" not in sys.modules


def test_classic_packages_are_told_from_what_only_uses_their_library(install: Any, tmp_path: Path) -> None:
    install("old-env", {"old_env.py": LOADER}, requires=("verifiers>=0.1.8",))
    install("split-env", {"split_env/__init__.py": "from split_env.it import load_environment\n",
                          "split_env/it.py": "def load_environment(): ...\n"}, requires=("verifiers",))  # fmt: skip
    install("trainer", {"trainer.py": "import verifiers\n"}, requires=("verifiers",))
    install("verifiers-tools", {"verifiers_tools.py": LOADER}, requires=("verifiers-extra",))
    found = {entry.name: entry for entry in catalogue(tmp_path)}
    assert {"old-env", "split-env"} <= set(found)
    assert not {"trainer", "verifiers-tools"} & set(found)
    assert found["old-env"].is_classic


def test_projects_of_a_folder_are_listed_once_and_only_if_they_hold_an_environment(
    install: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "environments"
    for name, text in {"fresh": LOADER, "known-env": LOADER, "library": "x = 1\n"}.items():
        module = name.replace("-", "_")
        (folder / module).mkdir(parents=True)
        (folder / module / "pyproject.toml").write_text(EVAL.format(name=name))
        (folder / module / f"{module}.py").write_text(text)
    (folder / "broken").mkdir()
    (folder / "broken" / "pyproject.toml").write_text("[]\n")
    install("known-env", {"known_env.py": LOADER}, entry="known-env = known_env:load_environment")
    found = {entry.name: entry for entry in catalogue(folder)}
    assert found["known-env"].status == "installed"
    assert (found["fresh"].status, found["fresh"].path) == ("not installed", str(folder / "fresh"))
    assert found["fresh"].defaults == {"num_examples": 7}
    assert "library" not in found
    assert found["broken"].status == "not installed"
    assert found["broken"].problem.startswith(f"{folder}/broken/pyproject.toml: not valid TOML: ")
    assert names(catalogue(folder))[-2:] == ["broken", "fresh"]  # what is not installed comes last


def test_an_editable_install_says_so(install: Any, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    direct = json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})
    install("linked", {"linked.py": LOADER}, entry="linked = linked:load_environment", direct_url=direct)
    [entry] = [entry for entry in catalogue(tmp_path) if entry.name == "linked"]
    assert entry.status == "editable"


@pytest.mark.slow
def test_fifty_more_environments_do_not_double_the_processor_time_of_a_list_and_load_nothing_heavy(
    install: Any, site: Path, tmp_path: Path
) -> None:
    for number in range(50):
        module = f"many_{number}"
        files = {f"{module}/__init__.py": LOADER, f"{module}/pyproject.toml": EVAL.format(name=module)}
        install(module, files, entry=f"many-{number} = {module}:load_environment")
    code = (
        "import sys, time\nsys.path[:0] = sys.argv[1:]\nstarted = time.process_time()\n"
        "from harness.cli.main import main\nassert main(['env', 'list', '--json']) == 0\n"
        "print(time.process_time() - started, *{'datasets', 'aiohttp', 'pyarrow', 'numpy'} & set(sys.modules),"
        " file=sys.stderr)"
    )

    def listed(*folders: str) -> tuple[list[dict[str, Any]], float, str]:
        command = [sys.executable, "-c", code, *folders]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        seconds, _, heavy = done.stderr.strip().partition(" ")
        made = [entry for entry in json.loads(done.stdout)["environments"] if entry["name"].startswith("many-")]
        return made, float(seconds), heavy

    few, many = math.inf, math.inf
    for _ in range(3):  # in turns: on a busy machine both take longer
        without, seconds, _ = listed()
        few = min(few, seconds)
        made, seconds, heavy = listed(str(site))
        many = min(many, seconds)
        assert (len(without), len(made), heavy) == (0, 50, "")
        assert all(entry["defaults"] for entry in made)
    assert many < 2 * few


def test_an_entry_point_may_name_another_module_and_another_function(install: Any) -> None:
    source = (
        "from harness import SingleTurnEnv\n\n"
        "def make(size: int = 2):\n    return SingleTurnEnv(dataset=[{'question': '?'}] * size)\n"
    )
    install("odd-dist", {"odd_module.py": source}, entry="fancy-name = odd_module:make")
    found = find_environment("lab/fancy-name")
    assert found is not None
    assert (found.module, found.dist_name) == ("odd_module", "odd-dist")
    description = describe("fancy-name", {"size": 3})
    assert description.loader is not None and description.content is not None
    assert [argument.name for argument in description.loader.arguments] == ["size"]
    assert description.content.rows == 3
