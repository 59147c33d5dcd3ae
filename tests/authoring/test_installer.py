from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness.authoring.installer import InstallOptions, InstallTarget, command_for, read_target, run_installer
from harness.core.errors import ConfigError


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallOptions:
    folder = tmp_path / "environments" / "my_env"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "my-env"\nversion = "1"\n')
    (tmp_path / "single.py").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "some_env-1.0-py3-none-any.whl").write_text("")
    monkeypatch.chdir(tmp_path)
    return InstallOptions()


@pytest.mark.parametrize(
    ("text", "requirement", "distribution"),
    [
        ("gsm8k", "gsm8k", "gsm8k"),
        ("org/gsm8k", "gsm8k", "gsm8k"),
        ("gsm8k==0.2", "gsm8k==0.2", "gsm8k"),
        ("org/gsm8k@0.2.1", "gsm8k==0.2.1", "gsm8k"),
        ("gsm8k[extra]>=1,<2", "gsm8k[extra]>=1,<2", "gsm8k"),
        ("git+https://example.org/x.git", "git+https://example.org/x.git", ""),
        ("x @ https://example.org/x.whl", "x @ https://example.org/x.whl", "x"),
    ],
)
def test_names_go_to_the_index_without_their_organisation(
    text: str, requirement: str, distribution: str, options: InstallOptions
) -> None:
    assert replace(read_target(text, options), doubt="") == InstallTarget(text, requirement, distribution)


ELSEWHERE = "the package of that name in the index may be another project"
UNKNOWN = "no environment here is called"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gsm8k", ELSEWHERE),
        ("org/gsm8k@0.2.1", ELSEWHERE),
        ("gsm8k[extra]>=1,<2", ELSEWHERE),
        ("my-emv", f"{UNKNOWN} my-emv, so it would be installed from the package index, where anybody can "
                   "register that name (did you mean 'my-env'?)"),
        ("agent-evl", "(did you mean 'agent-eval'?)"),
        ("nothing-like-it", "where anybody can register that name"),
        ("nothing-like-it>=1", UNKNOWN),
        ("nothing-like-it==1.*", UNKNOWN),
        ("lab/nothing-like-it==1.0", "their package nothing-like-it may not be from lab"),
    ],
)  # fmt: skip
def test_a_name_that_may_be_a_strangers_is_doubted(text: str, words: str, options: InstallOptions) -> None:
    assert words in read_target(text, options).doubt


@pytest.mark.parametrize(
    "text",
    [
        "nothing-like-it==1.2", "nothing-like-it@1.2", "nothing-like-it[x]==1.2", "gsm8k==0.2",  # looked up
        "pytest", "Typing.Extensions>=4",  # came from an index
        "my-env", "org/my-env", "./environments/my_env", "some_env-1.0-py3-none-any.whl",
        "git+https://example.org/x.git", "x @ https://example.org/x.whl",
    ],
)  # fmt: skip
def test_what_somebody_has_looked_up_or_has_here_is_not_doubted(text: str, options: InstallOptions) -> None:
    assert read_target(text, options).doubt == ""


@pytest.mark.parametrize("text", ["my-env", "my_env", "org/my-env", "./environments/my_env", "environments/my_env"])
def test_a_folder_is_meant_by_its_path_or_by_the_name_of_its_project(text: str, options: InstallOptions) -> None:
    folder = str((options.folder / "my_env").resolve())
    assert read_target(text, options) == InstallTarget(text, folder, "my-env", True)
    assert read_target(text, InstallOptions(editable=False)) == InstallTarget(text, folder, "my-env", False)


def test_a_version_is_never_taken_from_a_folder(options: InstallOptions) -> None:
    assert read_target("my-env==2.0", options) == InstallTarget("my-env==2.0", "my-env==2.0", "my-env")
    assert read_target("my-env>=2.0", options).doubt


def test_a_wheel_is_a_file_that_names_its_distribution(options: InstallOptions, tmp_path: Path) -> None:
    name = "some_env-1.0-py3-none-any.whl"
    assert read_target(name, options) == InstallTarget(name, str(tmp_path / name), "some_env")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("./nothing", "there is no such folder"),
        ("environments/nothere", "there is no such folder; to install the package nothere: bench env install nothere"),
        ("empty/nothere==1.0", "there is no such folder"),
        ("./empty", "the folder has no pyproject.toml"),
        ("./single.py", "a single file does not need to be installed; run it directly: bench run ./single.py"),
        ("other-1.0-py3-none-any.whl", "there is no such file"),
        ("my env", "is neither a folder nor a name"),
        *(
            (
                text,
                "need not be installed, and a package of this name would be by another author; agent-eval is built in",
            )
            for text in ("agent-eval", "Agent_Eval==1.0", "org/agent-eval", "agent-eval@2.0", "agent.eval[x]>1")
        ),
        ("--pre", "is neither a folder nor a name"),
        ("", "is neither a folder nor a name"),
    ],
)
def test_what_cannot_be_installed_is_refused_before_anything_runs(
    text: str, words: str, options: InstallOptions
) -> None:
    with pytest.raises(ConfigError, match=words):
        read_target(text, options)


def test_the_folder_of_projects_is_no_organisation_even_where_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lab/nothere: there is no such folder"):
        read_target("lab/nothere", InstallOptions(folder=Path("lab")))
    assert read_target("lab/nothere", InstallOptions(folder=tmp_path)).requirement == "nothere"


def test_all_targets_go_into_one_call_for_this_interpreter() -> None:
    targets = [InstallTarget("a", "/there/a", "a", True), InstallTarget("b", "b==1", "b")]
    command = command_for(targets, InstallOptions(upgrade=True, build_isolation=False))
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
    assert command[-5:] == ["--upgrade", "--no-build-isolation", "--editable", "/there/a", "b==1"]


def test_what_an_installer_says_is_handed_on_line_by_line_with_its_exit_code() -> None:
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    said: list[str] = []
    assert run_installer([sys.executable, "-u", "-c", code], said.append) == 3
    assert said == ["one", "two"]
