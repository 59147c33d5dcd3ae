"""From an idea to a published benchmark, as an author does it: real processes, a real wheel, another virtual
environment."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from other_venv import Author


@pytest.mark.slow
def test_the_wheel_of_a_new_environment_works_elsewhere(tmp_path: Path) -> None:
    author = Author(tmp_path, "here")
    author.bench("env", "init", "our-lab/grown-up")
    project = author.cwd / "environments/grown_up"

    build = author.run(
        "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", str(project / "dist"), str(project)
    )
    assert build.returncode == 0, build.stdout + build.stderr
    [wheel] = (project / "dist").glob("*.whl")

    user = Author(tmp_path / "elsewhere", "there")
    installed = user.bench("env", "install", str(wheel))
    assert installed.splitlines()[0].startswith("installed grown-up 0.1.0 (")
    listed = json.loads(user.bench("env", "list", "--json"))["environments"]
    [entry] = [entry for entry in listed if entry["name"] == "grown-up"]
    assert (entry["status"], entry["path"]) == ("installed", str(user.packages / "grown_up"))
    assert entry["defaults"] == {"num_examples": 50, "rollouts_per_example": 3}

    [run] = json.loads(user.bench("run", "grown-up", "-m", "reference/oracle", "--json"))["runs"]
    summary = json.loads((user.cwd / run["path"] / "summary.json").read_text())
    assert (summary["reward"]["mean"], summary["scored"]) == (1.0, 150)
    report = json.loads(user.bench("env", "check", "grown-up", "--json"))
    assert (report["passed"], report["failed"], report["skipped"]) == (True, 0, 0)


@pytest.mark.slow
def test_the_next_steps_of_a_new_environment_work_as_they_are_printed(tmp_path: Path) -> None:
    """They begin with an installer where there is none."""
    author = Author(tmp_path, "here")
    author.lose("pip")
    no_uv = {"PATH": "/nowhere"}
    told = author.run("-m", "harness.cli.main", "env", "init", "pasted", "--kind", "tool", env=no_uv).stdout
    steps = [shlex.split(line) for line in told.partition("\nNext\n")[2].partition("\n\n")[0].splitlines()]
    assert [step[step.index("-m") + 1] for step in steps] == ["ensurepip", *["harness.cli.main"] * 3, "pytest"]
    for step in steps:
        assert step[0] == str(author.venv / "bin/python")
        if "install" in step:
            step.append("--no-build-isolation")  # what it builds with is here; a test asks no index
        done = author.run(*step[1:], env=no_uv)
        assert done.returncode == 0, done.stdout + done.stderr
    told = author.run("-m", "harness.cli.main", "env", "init", "next", env=no_uv).stdout
    assert "ensurepip" not in told
    entries = json.loads(author.bench("env", "list", "--json"))["environments"]
    assert next(entry["status"] for entry in entries if entry["name"] == "pasted") == "editable"
    # An edit counts at once.
    module = author.cwd / "environments/pasted/pasted/__init__.py"
    module.write_text(module.read_text().replace("== answer)", "!= answer)"))
    assert "FAIL     oracle" in author.bench("env", "check", "pasted", code=1)


@pytest.mark.slow
def test_uv_is_told_which_interpreter_is_meant_unless_it_finds_it_itself(tmp_path: Path) -> None:
    author = Author(tmp_path, "here")
    author.lose("pip", "pytest", "_pytest")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "uv").write_text("#!/bin/sh\n")
    (tools / "uv").chmod(0o755)
    for name, active, meant in (
        ("one", "", f" --python {author.venv}/bin/python"),
        ("two", str(tmp_path / "another"), f" --python {author.venv}/bin/python"),
        ("three", str(author.venv), ""),
    ):
        environ = {"PATH": str(tools), "VIRTUAL_ENV": active}
        told = author.run("-m", "harness.cli.main", "env", "init", f"env-{name}", env=environ).stdout.splitlines()
        assert f"  uv pip install{meant} pytest" in told
        assert f"  uv build{meant} --wheel environments/env_{name}" in told


@pytest.mark.slow
def test_an_installation_that_fails_shows_what_the_installer_says(tmp_path: Path) -> None:
    author = Author(tmp_path, "here")
    author.bench("env", "init", "fragile")
    pyproject = author.cwd / "environments/fragile/pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace('readme = "README.md"', 'readme = "NOTHING.md"'))
    done = author.run("-m", "harness.cli.main", "env", "install", "fragile", "--no-build-isolation")
    assert done.returncode == 1
    assert "NOTHING.md" in done.stderr
    assert done.stderr.splitlines()[-1] == "error: pip ended with exit code 1; see its output above"
    assert "installed" not in done.stdout


@pytest.mark.slow
def test_what_is_installed_but_no_working_environment_is_a_failure(tmp_path: Path) -> None:
    author = Author(tmp_path, "here")
    author.bench("env", "init", "hollow")
    module = author.cwd / "environments/hollow/hollow/__init__.py"
    module.write_text("import nothing_of_this_name\n")
    told = author.bench("env", "install", "hollow", "--no-build-isolation", code=1)
    assert told.startswith("FAIL hollow: ")
    assert "'nothing_of_this_name'" in told
    assert "bench run" not in told
