"""Where classic packages come from: wheels, editable installs, single files and paths; a newer `verifiers` beside them;
packages of both generations in one process; what they declare as defaults; and what they may not leave behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from bench_runs import Done, Workshop
from classic_runs import Played, differences, environ, play, results, run_command
from classic_server import PACKAGES, Play, ScriptedModel

pytestmark = pytest.mark.slow

PATIENCE = 180.0

TWO_TABLES = ("capital_quiz", "river_facts")
"""Packages with `[tool.verifiers.eval]`, one of each generation."""


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


def made(package: str, folder: Path) -> Path:
    """A copy of a package, to build in."""
    return Path(shutil.copytree(PACKAGES / package, folder / package))


def installed(package: str, folder: Path) -> Path:
    """A folder with a package's wheel installed in it."""
    source = made(package, folder)
    python([*BUILD, str(folder / "dist")], cwd=source)
    [wheel] = (folder / "dist").glob("*.whl")
    python([*PIP, "--target", str(folder / "site"), str(wheel)], cwd=folder)
    return folder / "site"


BUILD = ["-m", "hatchling", "build", "-t", "wheel", "-d"]
PIP = ["-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "-q"]


def python(words: list[str], cwd: Path, program: str = sys.executable) -> str:
    done = subprocess.run([program, *words], cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("name", ["capital_quiz", "number_hunt", "lock_picker", "twin_desks"])
def test_a_wheel_is_found_by_its_name(shop: Workshop, tmp_path: Path, name: str) -> None:
    site = installed(name, tmp_path / "build")
    played = play(shop, name, env_id=f"some-org/{name.replace('_', '-')}", path=str(site))
    assert differences(Play(name).expected, played) == []
    assert played.log == Play(name).expected["log"]


@pytest.mark.parametrize("name", ["till_ledger", "lock_picker"])
def test_an_editable_install_is_found(shop: Workshop, tmp_path: Path, name: str) -> None:
    source = made(name, tmp_path)
    program = neighbour(tmp_path / "venv")
    python([*PIP, "-e", str(source)], cwd=tmp_path, program=program)
    script, log = Play(name), shop.cwd / "log"
    with ScriptedModel(name) as server:
        command = run_command(script.package.replace("_", "-"), server.url, "-r", str(script.rollouts))
        command += ["-a", json.dumps(script.args(server.url, log))]
        env = shop.environ(**environ(script, server.url, log, ""))
        done = subprocess.run(
            [program, "-m", "harness.cli.main", *command], cwd=shop.cwd, env=env, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    found = played_of(shop.run_dir())
    assert differences(script.expected, found) == []


def played_of(run: Path) -> Played:
    """What a run of ours says, whatever it printed."""
    return Played(Done(0, "", ""), run, results(run), [], {}, [])


def neighbour(folder: Path) -> str:
    """A virtual environment of its own that sees all that is installed in this one."""
    venv.create(folder, with_pip=False, symlinks=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    here = sysconfig.get_paths()["purelib"]
    (Path(paths["purelib"]) / "here.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return str(folder / "bin" / "python")


@pytest.mark.parametrize("name", ["plain_echo", "plain_typed", "row_tools_b"])
def test_a_single_file_is_found_by_name_and_by_path(shop: Workshop, name: str) -> None:
    by_name = play(shop, name)
    assert differences(Play(name).expected, by_name) == []
    shutil.rmtree(by_name.run)
    by_path = play(shop, name, env_id=str(PACKAGES / f"{name}.py"), path="")
    assert differences(Play(name).expected, by_path) == []


@pytest.mark.parametrize("name", ["desk_tools", "number_hunt", "parcel_tools"])
def test_a_folder_is_found_by_its_path(shop: Workshop, name: str) -> None:
    played = play(shop, name, env_id=str(PACKAGES / name), path="")
    assert differences(Play(name).expected, played) == []


@pytest.mark.parametrize("name", TWO_TABLES)
@pytest.mark.parametrize("way", ["wheel", "path"])
def test_defaults_of_the_classic_table_are_honoured(shop: Workshop, tmp_path: Path, name: str, way: str) -> None:
    place = str(installed(name, tmp_path / "build")) if way == "wheel" else str(PACKAGES / name)
    script = Play(name)
    with ScriptedModel(name) as server:
        done = shop.bench(
            "run", name, "-m", "scripted", "-b", server.url, "-q", "--json",
            env=environ(script, server.url, shop.cwd / "log", place),
        )  # fmt: skip
    assert done.code == 0, done.err
    examples, rollouts = {"capital_quiz": (4, 2), "river_facts": (3, 1)}[name]
    said = done.run["summary"]
    assert (said["num_examples"], said["num_rollouts"]) == (examples, examples * rollouts)


SUITE = ("capital_quiz", "river_facts", "number_hunt", "lock_picker", "desk_tools", "parcel_tools")


def test_both_generations_run_in_one_suite(shop: Workshop) -> None:
    log = shop.cwd / "log"
    path = os.pathsep.join(str(PACKAGES / name) for name in SUITE)
    with ScriptedModel(*SUITE) as server:
        text = "".join(
            f'[[eval]]\nenv_id = "{name}"\n[eval.env]\nnum_examples = -1\n'
            f"rollouts_per_example = {Play(name).rollouts}\nenv_args = {toml(Play(name).args(server.url, log))}\n"
            for name in SUITE
        )
        shop.write("suite.toml", text)
        env = environ(Play(SUITE[0]), server.url, log, path)
        done = shop.bench("run", "suite.toml", "-m", "scripted", "-b", server.url, "-q", env=env)
    assert done.code in (0, 1, 3), done.err
    found = {json.loads(path.read_text())["env_id"].replace("-", "_"): path.parent for path in shop.run_dirs()}
    assert sorted(found) == sorted(SUITE)
    for name in SUITE:
        assert differences(Play(name).expected, played_of(found[name])) == [], name
    assert sorted(log.read_text().splitlines()) == sorted(line for name in SUITE for line in Play(name).expected["log"])


def toml(args: dict[str, object]) -> str:
    return "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in args.items()) + "}"


NEWER = {
    "verifiers/__init__.py": "__version__ = '0.4.0'\n\n\nclass Taskset:\n    pass\n",
    "verifiers/types.py": "class Trace:\n    pass\n",
    "verifiers-0.4.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: verifiers\nVersion: 0.4.0\n",
    "verifiers-0.4.0.dist-info/RECORD": "verifiers/__init__.py,,\nverifiers/types.py,,\n",
    "verifiers-0.4.0.dist-info/INSTALLER": "pip\n",
}
"""What installing a classic environment brings along today: a release that has dropped the API."""


def newer(folder: Path) -> Path:
    for name, text in NEWER.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize("name", ["number_hunt", "lock_picker", "parcel_tools", "second_opinion"])
def test_the_api_is_answered_beside_a_release_that_dropped_it(shop: Workshop, tmp_path: Path, name: str) -> None:
    path = os.pathsep.join([str(newer(tmp_path / "newer")), *Play(name).places])
    played = play(shop, name, path=path)
    assert differences(Play(name).expected, played) == []


BESIDE = """
import importlib, json, sys
from harness import load_environment

first = {"before": "verifiers" in sys.modules}
if sys.argv[1] == "imported first":
    import verifiers
    from verifiers.types import Trace
    first["version"] = verifiers.__version__
built = [load_environment(name, **({} if name != "number_hunt" else {"high": 9})) for name in sys.argv[2:]]
import verifiers
import verifiers.types
print(json.dumps({
    "rows": [env.row_count for env in built],
    "version": verifiers.__version__,
    "has_taskset": hasattr(verifiers, "Taskset"),
    "has_rubric": hasattr(verifiers, "Rubric"),
    "has_trace": hasattr(verifiers.types, "Trace"),
    "file": verifiers.__file__,
    "same": sys.argv[1] != "imported first" or verifiers.types.Trace is Trace,
    "distribution": importlib.metadata.version("verifiers"),
}))
"""


@pytest.mark.parametrize("when", ["imported first", "imported later"])
def test_the_newer_release_stays_what_it_is(shop: Workshop, tmp_path: Path, when: str) -> None:
    names = ["number_hunt", "lock_picker", "capital_quiz", "river_facts"]
    folder = newer(tmp_path / "newer")
    path = os.pathsep.join([str(folder), *(str(PACKAGES / name) for name in names)])
    said = shop.python(BESIDE, when, *names, env={"PYTHONPATH": path})
    assert said == {
        "rows": [5, 5, 5, 4], "version": "0.4.0", "has_taskset": True, "has_rubric": False, "has_trace": True,
        "file": str(folder / "verifiers" / "__init__.py"), "same": True, "distribution": "0.4.0",
    }  # fmt: skip


ABSENT = """
import json, signal, sys
from harness import load_environment

before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
load_environment("lock_picker")
after = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
try:
    import verifiers
except ModuleNotFoundError as error:
    found = error.name
else:
    found = verifiers.__file__
left = sorted(name for name in sys.modules if name.startswith("verifiers"))
print(json.dumps({"same": before == after, "found": found, "left": left}))
"""


def test_nothing_is_left_behind(shop: Workshop) -> None:
    """Neither the name `verifiers` for those who did not ask for it, nor the signal handlers of a constructor."""
    said = shop.python(ABSENT, env={"PYTHONPATH": str(PACKAGES / "lock_picker")})
    assert said == {"same": True, "found": "verifiers", "left": []}
