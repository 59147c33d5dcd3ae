"""From an id to an environment: where it is looked for, and what is said when that fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import load_environment
from harness.core.errors import EnvironmentFault, EnvironmentLoadError, EnvironmentNotFound
from harness.engine.environment_loader import module_name
from harness.usercode.exceptions import interrupts_recorded

GOOD = """
from harness import SingleTurnEnv
def load_environment(word="hi", times=1):
    return SingleTurnEnv(dataset=[{"question": word * times}])
"""


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    """Loading a path adds to what can be imported: each test starts from the same."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith(("harness", "_pytest", "datasets")):
            del sys.modules[name]


def write(path: Path, text: str = GOOD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def install(site: Path, name: str, entry: str, text: str = GOOD) -> None:
    """What an installer leaves of an environment: its module and its entry point."""
    write(site / f"{entry.split(':')[0]}.py", text)
    write(site / f"{name}-1.0.dist-info" / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    write(site / f"{name}-1.0.dist-info" / "entry_points.txt", f"[harness.environments]\n{name} = {entry}\n")
    write(site / f"{name}-1.0.dist-info" / "top_level.txt", entry.split(":")[0])
    sys.path.insert(0, str(site))


@pytest.mark.parametrize(
    ("env_id", "module"), [("my-env", "my_env"), ("org/my-env", "my_env"), ("gsm8k", "gsm8k"), ("a/b/", "b")]
)
def test_an_id_stands_for_a_module(env_id: str, module: str) -> None:
    assert module_name(env_id) == module


def test_a_module_on_the_path_is_found_by_its_id(tmp_path: Path) -> None:
    write(tmp_path / "kit_by_module.py")
    sys.path.insert(0, str(tmp_path))
    env = load_environment("org/kit-by-module", word="yo", times=2)
    assert env.row(0).prompt == [{"role": "user", "content": "yoyo"}]
    assert (env.env_id, env.env_args) == ("org/kit-by-module", {"word": "yo", "times": 2})


def test_an_entry_point_is_found_first_and_may_name_its_function(tmp_path: Path) -> None:
    install(tmp_path, "kit-entry", "kit_entry_impl:load_environment")
    assert load_environment("kit-entry").env_id == "kit-entry"
    assert load_environment("kit_entry").row_count == 1


def test_a_file_is_an_environment(tmp_path: Path) -> None:
    path = write(tmp_path / "kit_file.py")
    env = load_environment(str(path))
    assert (env.env_id, env.row_count) == ("kit_file", 1)
    assert load_environment(str(path)).row_count == 1


@pytest.mark.parametrize(
    "inside", ["kit_folder.py", "kit_folder/__init__.py", "src/kit_folder/__init__.py", "__init__.py"]
)
def test_a_folder_is_an_environment(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / "kit-folder"
    write(folder / inside, "from harness import SingleTurnEnv\n" + GOOD)
    write((folder / inside).parent / "kit_words.py", "WORDS = 1")
    assert load_environment(str(folder)).env_id == "kit-folder"


def test_a_package_may_import_its_own_modules(tmp_path: Path) -> None:
    package = tmp_path / "kit-pack" / "kit_pack"
    write(package / "__init__.py", "from .words import WORD\nfrom kit_pack import words\n" + GOOD)
    write(package / "words.py", "WORD = 'x'")
    assert load_environment(str(tmp_path / "kit-pack")).row_count == 1


def test_two_files_of_one_name_are_two_environments(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a" / "kit_same.py"), write(tmp_path / "b" / "kit_same.py", GOOD.replace("hi", "ho"))
    prompts = [load_environment(str(path)).row(0).prompt for path in (one, two)]
    assert prompts == [[{"role": "user", "content": "hi"}], [{"role": "user", "content": "ho"}]]


def test_a_relative_path_is_one_if_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "environments" / "kit-rel" / "kit_rel.py")
    monkeypatch.chdir(tmp_path)
    assert load_environment("environments/kit-rel").env_id == "kit-rel"
    assert load_environment("./environments/kit-rel/kit_rel.py").env_id == "kit_rel"


def test_a_bare_word_is_never_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "kit-bare" / "kit_bare.py")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentNotFound):
        load_environment("kit-bare")


# What can go wrong


def test_an_unknown_environment_says_how_to_install_it_and_what_is_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", "kit-sums", "kit_sums")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EnvironmentNotFound) as caught:
        load_environment("kit-summs")
    assert "no module 'kit_summs' is installed; did you mean 'kit-sums', which is installed?" in str(caught.value)
    assert "bench env install" not in str(caught.value)  # nobody should install a typo
    assert caught.value.exit_code == 2
    with pytest.raises(EnvironmentNotFound, match=r"exists; the built-in environment is called 'agent-eval'$"):
        load_environment("agent_eval")  # and no word of pip: a package of that name is a stranger's
    write(tmp_path / "environments" / "kit_summs" / "pyproject.toml", "")
    with pytest.raises(EnvironmentNotFound, match=r"bench env install \./environments/kit_summs"):
        load_environment("kit-summs")


@pytest.mark.parametrize("env_id", ["./no-such", "no_such.py", "~/no-such-thing"])
def test_a_path_that_does_not_exist_is_told_as_a_path(env_id: str) -> None:
    with pytest.raises(EnvironmentNotFound, match="this file or folder does not exist"):
        load_environment(env_id)


def test_a_folder_without_a_module_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotFound, match=r"contains none of .*__init__\.py"):
        load_environment(str(tmp_path))


def test_ids_that_no_module_can_have_are_not_found() -> None:
    for env_id in ("", "no such", "3d"):
        with pytest.raises(EnvironmentNotFound):
            load_environment(env_id)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1", r"module 'kit_bad' \(.*kit_bad\.py\) has no load_environment\(\).*hides the environment"),
        ("import no_such_module_at_all", "it needs the module 'no_such_module_at_all', which is not installed; "),
        ("def load_environment(: pass", "importing it failed: SyntaxError"),
        ("raise SystemExit(0)", "importing it failed: SystemExit: 0"),
        ("def load_environment():\n    raise KeyError('token')", r"load_environment\(\) failed: KeyError: 'token'"),
        ("def load_environment():\n    raise SystemExit(2)", r"load_environment\(\) failed: SystemExit: 2"),
        ("def load_environment():\n    return 3", r"^environment '\S+': load_environment\(\) returned int, not an E"),
        (
            "async def load_environment():\n    return 3",
            r"^environment '\S+': load_environment\(\) must be a plain def",
        ),
        ("raise GeneratorExit", "importing it failed: GeneratorExit"),
        ("def load_environment():\n    raise GeneratorExit", r"load_environment\(\) failed: GeneratorExit"),
        (
            "from harness import SingleTurnEnv\ndef load_environment():\n    return SingleTurnEnv(dataset=[])",
            r"load_environment\(\) failed: dataset is empty",
        ),
    ],
)
def test_an_environment_that_cannot_be_loaded_says_why(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path / "kit_bad.py", text)
    with pytest.raises(EnvironmentLoadError, match=words) as caught:
        load_environment(str(path))
    assert str(caught.value).startswith(f"environment '{path}': ")
    if "failed" in words:
        assert caught.value.__cause__ is not None


def test_a_missing_dependency_of_an_installed_environment_is_not_a_missing_environment(tmp_path: Path) -> None:
    write(tmp_path / "kit_needs_more.py", "import kit_needs")  # its name begins like the environment's
    sys.path.insert(0, str(tmp_path))
    with pytest.raises(EnvironmentLoadError, match="it needs the module 'kit_needs', which is not installed"):
        load_environment("kit-needs-more")


def test_a_failed_import_leaves_nothing_behind(tmp_path: Path) -> None:
    path = write(tmp_path / "kit_retry.py", "raise ValueError")
    with pytest.raises(EnvironmentLoadError):
        load_environment(str(path))
    write(path)
    assert load_environment(str(path)).row_count == 1


@pytest.mark.parametrize("text", ["raise KeyboardInterrupt", "def load_environment():\n    raise KeyboardInterrupt"])
def test_an_interrupt_while_an_environment_loads_is_the_users(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "kit_interrupted.py", text)
    with pytest.raises(KeyboardInterrupt):
        load_environment(str(path))


def test_wrong_arguments_name_the_right_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "kit_args.py")
    with pytest.raises(EnvironmentLoadError) as caught:
        load_environment(str(path), wrd="x")
    assert "env_args: got an unexpected keyword argument 'wrd' (did you mean 'word'?); it takes word, times" in str(
        caught.value
    )
    assert caught.value.exit_code == 2
    none = write(tmp_path / "kit_no_args.py", GOOD.replace('word="hi", times=1', "").replace("word * times", '"x"'))
    with pytest.raises(EnvironmentLoadError, match="; it takes no arguments"):
        load_environment(str(none), word="x")


def test_arguments_that_are_passed_on_are_checked_by_the_constructor(tmp_path: Path) -> None:
    text = """
from harness import MultiTurnEnv
class Mine(MultiTurnEnv):
    async def env_response(self, messages, state): return []
def load_environment(**kwargs):
    return Mine(dataset=[{"question": "q"}], **kwargs)
"""
    path = write(tmp_path / "kit_passes.py", text)
    assert load_environment(str(path), max_turns=3).env_args == {"max_turns": 3}
    with pytest.raises(EnvironmentLoadError, match=r"Mine\(max_turn=…\): unknown name; did you mean 'max_turns'"):
        load_environment(str(path), max_turn=3)


def test_an_argument_that_the_environment_refuses_is_the_callers(tmp_path: Path) -> None:
    text = "from harness.errors import ConfigError\ndef load_environment(n=1):\n    raise ConfigError('n must be odd')"
    with pytest.raises(EnvironmentLoadError, match=r"load_environment\(\) failed: n must be odd") as caught:
        load_environment(str(write(tmp_path / "kit_odd.py", text)), n=2)
    assert caught.value.exit_code == 2


def test_an_environment_may_set_its_own_id_and_arguments(tmp_path: Path) -> None:
    text = GOOD.replace("word * times}]", 'word}], env_id="own", env_args={"seed": 1}')
    env = load_environment(str(write(tmp_path / "kit_own.py", text)))
    assert (env.env_id, env.env_args) == ("own", {"seed": 1})


SIGNALS = """
import signal
from harness import SingleTurnEnv
def load_environment():
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return SingleTurnEnv(dataset=[{"question": "q"}])
"""


def test_signal_handlers_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    path = write(tmp_path / "kit_signals.py", SIGNALS)
    assert load_environment(str(path)).row_count == 1
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_loading_outside_the_main_thread_leaves_signals_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "kit_thread.py")
    rows: list[int] = []
    thread = threading.Thread(target=lambda: rows.append(load_environment(str(path)).row_count))
    thread.start()
    thread.join(30)
    assert rows == [1]


def test_an_environment_fault_is_what_callers_catch() -> None:
    assert issubclass(EnvironmentNotFound, EnvironmentFault)
    assert issubclass(EnvironmentLoadError, EnvironmentFault)


def test_an_environment_runs_in_a_fresh_process(tmp_path: Path) -> None:
    path = write(tmp_path / "kit_fresh.py")
    program = f"from harness import load_environment; print(load_environment({str(path)!r}).row_count)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"


# Classic packages


CLASSIC = """
import verifiers as vf
def right(completion, anwser): return 1.0
def load_environment(late=False, other=None):
    rubric = vf.Rubric()
    env = vf.SingleTurnEnv(dataset=[{"question": "q"}], rubric=rubric)
    rubric.add_reward_func(right)
    if late:
        rubric.add_class_object("anwser", "added when the environment had its rubric already")
    return vf.load_environment(other, late=True) if other else env
"""


@pytest.mark.plugins
def test_a_classic_package_is_an_environment_of_ours(tmp_path: Path) -> None:
    write(tmp_path / "kit_classic_one.py", CLASSIC)
    write(tmp_path / "kit_classic_two.py", CLASSIC)
    sys.path.insert(0, str(tmp_path))
    env = load_environment("org/kit-classic-one", late=True)
    assert (env.env_id, env.env_args, env.rubric.metric_names) == (
        "org/kit-classic-one", {"late": True}, ("right", "num_turns"),
    )  # fmt: skip
    assert load_environment("kit-classic-one", other="kit-classic-two").env_id == "kit-classic-two"
    assert "verifiers" not in sys.modules


@pytest.mark.plugins
def test_a_classic_package_is_checked_when_it_has_been_built(tmp_path: Path) -> None:
    path = write(tmp_path / "kit_classic_wrong.py", CLASSIC)
    with pytest.raises(EnvironmentLoadError, match="'right', parameter 'anwser': unknown name"):
        load_environment(str(path))


def test_what_loading_does_to_the_process_is_undone_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_API_KEY", "of another run")
    monkeypatch.setenv("LAB_PAT", "of another run, too")
    monkeypatch.setenv("LAB_MODE", "old")
    streams = sys.stdout, sys.stderr
    text = (
        "import os, sys\nos.chdir('/')\nsys.stdout = sys.stderr = None\ndel os.environ['LAB_API_KEY']\n"
        f"os.environ['LAB_PAT'] = os.environ['LAB_MODE'] = 'new'\n{GOOD}"
    )
    load_environment(str(write(tmp_path / "kit_rude.py", text)))
    assert (Path.cwd(), os.environ["LAB_API_KEY"], os.environ["LAB_MODE"]) == (tmp_path, "of another run", "new")
    assert os.environ["LAB_PAT"] == "of another run, too"
    assert (sys.stdout, sys.stderr) == streams
    assert [message.partition("kit_rude.py' ")[2] for message in caplog.messages] == [
        "changed the environment variables LAB_API_KEY, LAB_PAT while loading; their values were restored",
        f"changed the working directory to / while loading; it was changed back to {tmp_path}",
    ]


def test_ctrl_c_is_the_users_and_a_raised_interrupt_the_authors(tmp_path: Path) -> None:
    raises = write(tmp_path / "kit_raises.py", "raise KeyboardInterrupt")
    pressing = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)"
    pressed = write(tmp_path / "kit_pressed.py", pressing)
    with interrupts_recorded():
        with pytest.raises(EnvironmentLoadError, match=r"importing it failed: KeyboardInterrupt \(in <module>, kit_r"):
            load_environment(str(raises))
        with pytest.raises(KeyboardInterrupt):
            load_environment(str(pressed))
