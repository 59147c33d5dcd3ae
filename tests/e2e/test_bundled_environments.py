"""The wheel of bench in an otherwise empty virtual environment: it brings the ten environments, as if installed."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from bench_runs import Workshop
from dead_ports import free_port
from other_venv import Author

ROOT = Path(__file__).resolve().parents[2]
TEN = {path.parent.name.replace("_", "-") for path in ROOT.glob("environments/*/pyproject.toml")}


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Author:
    """A virtual environment that has all packages of this one but bench and its environments, which come from a
    wheel."""
    folder = tmp_path_factory.mktemp("bare")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [wheel] = (folder / "dist").glob("*.whl")
    author = Author(folder, "venv")
    modules = {name.replace("-", "_") for name in TEN}
    author.lose("bench_harness", "_editable_impl_", *modules)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(author.packages)
    return author


def refusing(user: Author) -> dict[str, str]:
    """Variables for a Hub that cannot be reached."""
    return {"HF_ENDPOINT": f"http://127.0.0.1:{free_port()}", "HF_HOME": str(user.cwd / "hf")}


@pytest.mark.slow
def test_a_wheel_brings_the_ten_environments_and_harbor(user: Author) -> None:
    listed = json.loads(user.bench("env", "list", "--json"))["environments"]
    assert {each["name"]: each["status"] for each in listed} == dict.fromkeys([*TEN, "harbor"], "bundled")
    assert "11 bundled with bench" in user.bench("env", "list")
    assert "part of bench" in user.bench("env", "info", "wordle")


@pytest.mark.slow
def test_a_suite_runs_what_needs_no_hub_and_names_ways_without_it(user: Author) -> None:
    words = ("run", "gsm8k,wordle", "-n", "2", "-r", "1", "-m", "reference/oracle", "--json")
    done = user.run("-m", "harness.cli.main", *words, env=refusing(user))
    runs = {each["name"]: each for each in json.loads(done.stdout)["runs"]}
    assert done.returncode == 1
    assert (runs["wordle"]["state"], runs["gsm8k"]["state"]) == ("done", "failed")
    assert '-a \'{"split": "sample"}\'' in done.stderr and "PATH.jsonl" in done.stderr


@pytest.mark.slow
def test_runs_of_a_bundled_and_of_an_installed_environment_match(user: Author, tmp_path: Path) -> None:
    words = ("run", "reverse-text", "-n", "3", "-r", "2", "-m", "reference/oracle", "-o")
    user.bench(*words, "bundled")
    done = Workshop(tmp_path).bench(*words, str(user.cwd / "installed"))
    assert done.code == 0, done.said

    def keys(output: str) -> set[str]:
        [journal] = (user.cwd / output).rglob("journal.jsonl")
        lines = map(json.loads, journal.read_text().splitlines())
        return {line["key"] for line in lines if line["type"] == "generated"}

    assert len(keys("bundled")) == 6 and keys("bundled") == keys("installed")


@pytest.mark.slow
def test_a_copy_is_the_users_own(user: Author) -> None:
    printed = user.bench("env", "copy", "reverse-text")
    folder = user.cwd / "environments" / "reverse_text"
    assert {"pyproject.toml", "README.md", "reverse_text"} == {path.name for path in folder.iterdir()}
    assert "bench run ./environments/reverse_text" in printed
    module = folder / "reverse_text" / "__init__.py"
    module.write_text(module.read_text() + "\n\ndef unused() -> None: ...\n")
    listed = json.loads(user.bench("env", "list", "--json"))["environments"]
    assert [each["status"] for each in listed if each["name"] == "reverse-text"] == ["bundled", "not installed"]
    own = user.bench("run", "./environments/reverse_text", "-n", "1", "-m", "reference/oracle", "-o", "own", "--json")
    assert json.loads(own)["runs"][0]["state"] == "done"
    bundled = user.run("-m", "harness.cli.main", "run", "reverse-text", "-n", "1", "-m", "reference/oracle", "-o", "x")
    assert "the copy in environments/reverse_text is not used" in bundled.stderr
    assert "is sound" in user.bench("env", "check", "reverse-text"), "the copy is no fault of the bundled one"
    assert "0.1.0, part of bench; imported" in user.bench("doctor", "reverse-text", "-m", "reference/oracle")
    user.bench("env", "copy", "./environments/reverse_text", "--path", "elsewhere")
    copied = user.cwd / "elsewhere" / "reverse_text"
    assert (copied / "reverse_text" / "__init__.py").read_bytes() == module.read_bytes()
    again = user.run("-m", "harness.cli.main", "env", "copy", "reverse-text")
    assert again.returncode == 2 and "already exists" in again.stderr


@pytest.mark.slow
def test_advice_does_not_lead_to_the_package_index(user: Author) -> None:
    typo = user.run("-m", "harness.cli.main", "run", "gsm8kk", "-m", "reference/oracle")
    assert typo.returncode == 2
    assert "did you mean 'gsm8k'?" in typo.stderr and "install gsm8kk" not in typo.stderr
    install = user.run("-m", "harness.cli.main", "env", "install", "tool-test")
    assert install.returncode == 2
    assert "because it comes with bench" in install.stderr and "bench env copy tool-test" in install.stderr
