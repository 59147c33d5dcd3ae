"""Plugins of other packages, which are built and installed for this, and `bench` without its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from documented import ROOT, blocks

PAGE = ROOT / "docs" / "concepts" / "plugins.md"
PATIENCE = 180.0

ENVIRONMENT = """
from oldkit import QUESTIONS
from harness.envs import SingleTurnEnv
from harness.rubrics import Rubric


async def right(completion, answer):
    return float(completion[-1]["content"] == answer)


class Old(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer


def load_environment():
    return Old(dataset=QUESTIONS, rubric=Rubric(funcs=[right]))
"""

BROKEN = """[bench.commands]
gone = no_such_module:COMMAND
wrong = json:dumps
run = json:dumps

[bench.exporters]
gone = no_such_module:EXPORTER

[bench.fault_sources]
gone = no_such_module:faults

[bench.import_hooks]
gone = no_such_module:HOOK

[bench.importers]
gone = no_such_module:IMPORTER

[bench.environment_sources]
gone = no_such_module:SOURCE
strange = bench_strange:SOURCE

[bench.executors]
gone = no_such_module:EXECUTOR

[bench.listeners]
gone = no_such_module:LISTENER
strange = bench_strange:LISTENER

[bench.leaderboards]
gone = no_such_module:board
strange = bench_strange:board
taken = bench_strange:taken
"""

STRANGE = """
from harness.core.errors import EnvironmentLoadError
from harness.engine.listeners import EvaluationListener
from harness.settings.environment_sources import EnvironmentSource, FoundEnvironment


def board(option: "NoSuchType" = None):
    return None


def taken(repo: str = ""):
    return None


def fail(*arguments):
    raise ValueError("no listening today")


class Source(EnvironmentSource):
    def find(self, name):
        if name == "extra":
            return FoundEnvironment("strange")
        raise KeyError(name)

    def function(self, name):
        raise EnvironmentLoadError("it needs the extra 'strange', which is not installed")


LISTENER = EvaluationListener(fail, fail, fail, fail)
SOURCE = Source()
"""


def python(folder: Path, path: list[Path], *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))}
    environ |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "NO_COLOR": "1", "COLUMNS": "180"}
    command = [sys.executable, *words]
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == code, f"{words}\n{done.stdout}{done.stderr}"
    return done


BENCH = ("-m", "harness.cli.main")


@contextmanager
def serving(folder: Path, path: list[Path], *options: str) -> Iterator[str]:
    """Run `bench serve`; give its URL."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, *BENCH, "serve", "--port", "0", *options]
    with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def status_of(url: str) -> int:
    """The HTTP status of a request."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    try:
        with urllib.request.urlopen(f"{url}/chat/completions", body, timeout=PATIENCE) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package of the page is installed."""
    folder = tmp_path_factory.mktemp("package")
    for block in blocks(PAGE):
        name = block.before.rpartition("Save this as `")[2].partition("`")[0]
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(block.text + "\n", encoding="utf-8")
    python(folder, [], "-m", "hatchling", "build", "-t", "wheel", "-d", "dist")
    [wheel] = (folder / "dist").glob("*.whl")
    options = ["--no-index", "--no-deps", "-q", "--target", "site"]
    python(folder, [], "-m", "pip", "install", *options, str(wheel))
    (folder / "site" / "oldenv.py").write_text(ENVIRONMENT, encoding="utf-8")
    return folder / "site"


@pytest.mark.slow
def test_a_package_adds_a_command_a_format_a_fault_and_an_import_hook(site: Path, tmp_path: Path) -> None:
    shown = python(tmp_path, [site], *BENCH, "--help")
    assert "oldkit" in shown.stdout and "Show what oldkit knows." in shown.stdout
    called = python(tmp_path, [site], *BENCH, "oldkit", "--name", "kit")
    assert called.stdout == "kit: 2 questions\n"
    python(tmp_path, [site], *BENCH, "run", "oldenv", "-m", "reference/oracle", "-r", "1")
    done = python(tmp_path, [site], *BENCH, "export", "latest", "-o", "a.rewards")
    assert (tmp_path / "a.rewards").read_text() == "1.0\n1.0\n"
    assert "not used" not in shown.stderr + called.stderr + done.stderr
    with serving(tmp_path, [site], "--teapots", "2") as url:
        assert [status_of(url) for _ in range(4)] == [200, 418, 200, 418]
        with urllib.request.urlopen(f"{url.removesuffix('/v1')}/stats", timeout=PATIENCE) as reply:
            assert json.load(reply)["faults"] == {"teapot": 2}
    both = python(tmp_path, [site], *BENCH, "serve", "--port", "0", "--teapots", "2", "--fault", "429", code=2)
    assert "the options of several plugins cannot be combined: oldkit, script" in both.stderr


@pytest.mark.slow
def test_a_package_adds_environments_an_executor_and_a_listener(site: Path, tmp_path: Path) -> None:
    options = ("-m", "reference/oracle", "-n", "2", "-r", "2")
    ran = python(
        tmp_path, [site], *BENCH, "run", "oldkit/small,oldkit/large", *options, "--executor", "oldkit", "--json"
    )
    runs = json.loads(ran.stdout)["runs"]
    assert [(run["name"], run["state"], run["summary"]["reward"]["mean"]) for run in runs] == [
        ("oldkit/small", "done", 1.0),
        ("oldkit/large", "done", 1.0),
    ]
    log = (tmp_path / "oldkit.log").read_text().splitlines()
    assert log[0] == "begin oldkit/small, oldkit/large"
    assert sorted(log[1:]) == sorted(
        f"rollout {index} of oldkit/{name}" for name in ("small", "large") for _ in range(2) for index in range(2)
    )
    manifest = json.loads((Path(tmp_path, runs[0]["path"]) / "run.json").read_text())
    assert manifest["identity"]["env"]["distribution"] == "bench-oldkit 1.0"
    assert manifest["settings"]["env.executor"] == "oldkit"
    # In processes of the environment's own, and with a resume that goes on without the executor.
    python(tmp_path, [site], *BENCH, "run", "oldkit/small", *options, "--isolate", "-a", '{"rows": 5}')
    python(tmp_path, [site], *BENCH, "resume", str(tmp_path / runs[0]["path"]), "--set", "env.executor=none")
    both = python(
        tmp_path, [site], *BENCH, "run", "oldkit/small", *options, "--executor", "oldkit", "--isolate", code=2
    )
    assert "--executor oldkit: an executor cannot be combined with --isolate or --workers" in both.stderr
    gone = python(tmp_path, [site], *BENCH, "run", "oldkit/small", *options, "--executor", "newkit", code=2)
    assert "--executor newkit: the executor 'newkit' is not installed" in gone.stderr
    unknown = python(tmp_path, [site], *BENCH, "run", "oldkit/smal", *options, code=2)
    assert "'oldkit' has no environment 'smal'; did you mean 'small'?" in unknown.stderr
    args = python(tmp_path, [site], *BENCH, "run", "oldkit/small", *options, "-a", '{"row": 5}', code=2)
    assert "unexpected keyword argument 'row' (did you mean 'rows'?)" in args.stderr


@pytest.mark.slow
def test_a_package_adds_an_import_format_and_a_leaderboard(site: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.oldkit").write_text("1 + 1 =,2,1\n1 + 1 =,3,0\n2 + 2 =,4,1\n")
    python(tmp_path, [site], *BENCH, "import", "scores.oldkit")
    pushed = python(tmp_path, [site], *BENCH, "push", "latest", "--oldkit-board", "board.txt")
    assert (pushed.stdout, (tmp_path / "board.txt").read_text()) == ("", "0.75\n")


@pytest.mark.slow
def test_a_broken_package_is_noted_and_harms_nothing_else(site: Path, tmp_path: Path) -> None:
    metadata = tmp_path / "site" / "bench_broken-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(BROKEN)
    (metadata.parent / "bench_strange.py").write_text(STRANGE)
    path = [metadata.parent, site]
    shown = python(tmp_path, path, *BENCH, "--help")
    assert "Show what oldkit knows." in shown.stdout and "exec" in shown.stdout
    notes = [line for line in shown.stderr.splitlines() if "is not used" in line]
    assert len(notes) == 3, shown.stderr
    assert any("'gone' of the package bench_broken" in note and "no_such_module" in note for note in notes)
    assert any("'wrong'" in note and "must be a CommandEntry, not a function" in note for note in notes)
    assert any("'run'" in note and "another plugin or a built-in feature has the same name" in note for note in notes)
    lacking = python(tmp_path, path, *BENCH, "run", "strange/extra", "-m", "reference/oracle", code=1)
    assert "environment 'strange/extra': it needs the extra 'strange', which is not installed\n" in lacking.stderr
    ran = python(tmp_path, path, *BENCH, "run", "oldenv", "-m", "reference/oracle")
    assert ran.stderr.count("is not used") == 2, ran.stderr  # an import hook and a listener
    assert "'strange' (bench.listeners) failed in finished: ValueError: no listening today" in ran.stderr
    failed = python(tmp_path, path, *BENCH, "run", "strange/one", "-m", "reference/oracle", code=1)
    assert "the plugin 'strange' (bench.environment_sources) failed: KeyError: 'one'" in failed.stderr
    pushing = python(tmp_path, path, *BENCH, "push", "--help")
    assert "its options cannot be read: NameError" in pushing.stderr
    assert "'taken'" in pushing.stderr and "the option 'repo' already exists" in pushing.stderr
    exported = python(tmp_path, path, *BENCH, "export", "latest", "-o", "a.csv")
    assert exported.stderr.count("is not used") == 1, exported.stderr


@pytest.mark.slow
def test_a_checkout_without_plugins_runs_a_suite(tmp_path: Path) -> None:
    copy = tmp_path / "checkout"
    leave_out = shutil.ignore_patterns("plugins", "__pycache__")
    shutil.copytree(ROOT / "harness", copy / "harness", ignore=leave_out)
    metadata = copy / "bench_harness-0.1.0.dist-info"  # comes before the installed one, and declares no entry points
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bench-harness\nVersion: 0.1.0\n")
    suite = str(ROOT / "configs" / "eval" / "quickstart.toml")
    ran = python(tmp_path, [copy], *BENCH, "run", suite, "-n", "2", "-r", "1")
    assert "not used" not in ran.stderr, ran.stderr
    for run in sorted((tmp_path / "outputs").rglob("journal.jsonl")):
        python(tmp_path, [copy], *BENCH, "export", str(run.parent), "--format", "jsonl")
    assert len(list(tmp_path.glob("*.jsonl"))) == 8
    assert "exec" not in python(tmp_path, [copy], *BENCH, "--help").stdout
    refused = python(tmp_path, [copy], *BENCH, "export", "latest", "--format", "verifiers", code=2)
    assert "unknown export format 'verifiers'" in refused.stderr
    code = "import harness, importlib.util as u; print(harness.__file__, u.find_spec('harness.plugins'))"
    assert python(tmp_path, [copy], "-c", code).stdout == f"{copy / 'harness' / '__init__.py'} None\n"
