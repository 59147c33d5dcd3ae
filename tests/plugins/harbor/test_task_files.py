"""Folders of tasks and their `task.toml`: what is read, what is refused by name, and git repositories."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from containers import need_podman
from harbor_tasks import TASK, load, make_task
from tables import for_each_row

from harness.core.errors import ConfigError, EnvironmentLoadError, EnvironmentNotFound
from harness.plugins.harbor.loader import load_environment
from harness.plugins.harbor.places import place_of, split_url, task_folders
from harness.plugins.harbor.task_file import UnsupportedTask, read_task


def test_all_values_of_a_task_are_kept(tmp_path: Path) -> None:
    toml = """version = "1.0"
artifacts = []
[metadata]
anything = [1, { deep = true }]
[task]
name = "org/name"
[verifier]
timeout_sec = 12
user = "root"
[agent]
timeout_sec = 34.5
user = 1000
[environment]
build_timeout_sec = 56
docker_image = "some/image:1"
cpus = 2
memory = "1.5G"
storage = "10240M"
gpus = 0
gpu_types = []
allow_internet = false
workdir = "/app"
os = "Linux"
mcp_servers = []
"""
    folder = make_task(tmp_path, files={"task.toml": toml})
    task = read_task("a-task", folder, tmp_path)
    assert (task.verifier_seconds, task.agent_seconds, task.build_seconds) == (12.0, 34.5, 56.0)
    assert (task.verifier_user, task.agent_user, task.workdir) == ("root", "1000", "/app")
    assert (task.docker_image, task.cpus, task.memory_mb, task.storage_mb) == ("some/image:1", 2.0, 1536, 10240)
    assert not task.network and task.unknown_keys == ()
    (folder / "task.toml").write_text('[environment]\ndocker_image = "x"\n')
    task = read_task("a-task", folder, tmp_path)
    assert (task.verifier_seconds, task.agent_seconds, task.build_seconds) == (600.0, None, 600.0)
    assert (task.cpus, task.memory_mb, task.storage_mb, task.network) == (None, 2048, None, True)


WRONG: list[tuple[str, str]] = [
    ("[agent", "task.toml cannot be read"),
    ("a = " + "[" * 50_000, "task.toml cannot be read"),
    ("agent = 3", "agent must be a table, not 3"),
    ("[agent]\ntimeout_sec = 'x'", "agent.timeout_sec must be a number above 0, not 'x'"),
    ("[agent]\ntimeout_sec = nan", "agent.timeout_sec must be a number above 0"),
    ("[agent]\ntimeout_sec = true", "agent.timeout_sec must be a number above 0, not True"),
    ("[verifier]\ntimeout_sec = -1", "verifier.timeout_sec must be"),
    ("[verifier]\nuser = [1]", "verifier.user must be a text"),
    ("[verifier]\nenv = 3", "verifier.env must be a table"),
    ("[verifier.env]\nA = 3", "verifier.env.A must be a text, not 3"),
    ("[environment.env]\n'BASH_FUNC_echo%%' = '() { :; }'", "environment.env must be a table of names of letters"),
    ("[environment]\nmemory = '2X'", "environment.memory must be a size such as '2G' or '512M', not '2X'"),
    ("[environment]\nmemory = '1M'", "environment.memory must be at least 6M, not '1M'"),
    ("[environment]\nmemory_mb = 1", "environment.memory_mb must be at least 6, not 1"),
    ("[environment]\ncpus = 0.0001", "environment.cpus must be at least 0.01, not 0.0001"),
    ("[environment]\ncpus = 1e400", "environment.cpus must be a number above 0, not inf"),
    ("[environment]\nworkdir = 'app'", "environment.workdir must be an absolute path"),
    ("[environment]\ndocker_image = '--privileged'", "environment.docker_image must be the name of an image"),
    ("[environment]\ndocker_image = 'dir:/etc'", "environment.docker_image must be the name of an image"),
    ("[environment]\ndocker_image = 'oci:x'", "environment.docker_image must be the name of an image"),
    ("[environment]\nallow_internet = 'no'", "environment.allow_internet must be true or false"),
    ("[environment]\nnetwork_mode = ['x']", "environment.network_mode must be 'public' or 'no-network'"),
    ("", "neither environment.docker_image nor environment/Dockerfile"),
]


@for_each_row(("toml", "words"), WRONG)
def test_a_wrong_value_is_an_error_with_file_and_key(toml: str, words: str, tmp_path: Path) -> None:
    folder = make_task(tmp_path, files={"task.toml": toml})
    with pytest.raises(ConfigError) as raised:
        read_task("a-task", folder, tmp_path)
    assert not isinstance(raised.value, UnsupportedTask)
    assert words in str(raised.value) and str(folder) in str(raised.value)


UNSUPPORTED: list[tuple[str, dict[str, str], str]] = [
    ("gpus = 1", {}, "environment.gpus: GPUs"),
    ("", {"task.toml": "schema_version = '99.0'"}, "schema_version: only version 1"),
    ("[[steps]]\nname = 'x'", {}, "steps: several steps"),
    ("", {"steps/one/instruction.md": "x"}, "steps: several steps"),
    ("", {"environment/docker-compose.yaml": "x"}, "docker-compose.yaml: several containers"),
    ("[[environment.mcp_servers]]\nname = 'x'", {}, "MCP servers"),
    ("healthcheck = { command = 'true' }", {}, "environment.healthcheck: health checks"),
    ("skills_dir = '/skills'", {}, "environment.skills_dir"),
    ("os = 'windows'", {}, "environment.os: only linux"),
    ("[verifier]\nenvironment_mode = 'separate'", {}, "verifier.environment_mode"),
    ("[verifier.environment]\ncpus = 1", {}, "verifier.environment"),
    ("[[verifier.collect]]\ncommand = 'x'", {}, "verifier.collect"),
    ("[agent]\nnetwork_mode = 'allowlist'\nallowed_hosts = ['x.org']", {}, "agent.allowed_hosts"),
    ("[verifier]\nnetwork_mode = 'public'", {}, "verifier.network_mode: a network that changes"),
]


@for_each_row(("toml", "files", "words"), UNSUPPORTED)
def test_what_is_not_supported_is_refused_by_name(toml: str, files: dict[str, str], words: str, tmp_path: Path) -> None:
    folder = make_task(tmp_path / str(len(list(tmp_path.iterdir()))), toml=toml, files=files)
    with pytest.raises(UnsupportedTask) as raised:
        read_task("a-task", folder, tmp_path)
    assert words in str(raised.value) and str(folder) in str(raised.value)


def test_tasks_that_are_not_supported_are_left_out_on_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_task(tmp_path, "good", toml="strange = 1\n[agent]\ncolour = 'red'\n")
    make_task(tmp_path, "deep/er/good")
    make_task(tmp_path, "wants-gpu", toml="gpus = 2\n")
    with pytest.raises(ConfigError, match=r"1 of 3 tasks are not supported: .*wants-gpu.*GPUs.*skip_unsupported"):
        load(tmp_path)
    with caplog.at_level(logging.WARNING, "harness"):
        env = load(tmp_path, skip_unsupported=True)
    assert [env.row(index).example_id for index in range(env.row_count)] == ["deep/er/good", "good"]
    assert "1 of 3 tasks are left out" in caplog.text
    assert "the key environment.strange is not known and has no effect (1 of 2 tasks, such as good)" in caplog.text
    assert [load(tmp_path, tasks=tasks).row_count for tasks in ("good", "*good", ["deep/er/good"])] == [1, 2, 1]
    with pytest.raises(EnvironmentNotFound, match=r"there is no task 'goood'; did you mean .good"):
        load(tmp_path, tasks=["goood"])


def test_links_that_leave_the_folder_and_special_files_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    root = tmp_path / "tasks"
    for part in ("instruction.md", "task.toml", "tests/test.sh", "environment/Dockerfile", "tests"):
        folder = make_task(root, files={"environment/Dockerfile": "FROM x\n"})
        path = folder / part
        path.rename(tmp_path / "moved")
        path.symlink_to(secret)
        with pytest.raises(ConfigError, match=f"{part} is a link to a place outside of"):
            read_task("a-task", folder, root)
        path.unlink()
        (tmp_path / "moved").rename(path)
    read_task("a-task", folder, root)
    (folder / "instruction.md").unlink()
    os.mkfifo(folder / "instruction.md")
    with pytest.raises(ConfigError, match=r"instruction.md cannot be read"):
        read_task("a-task", folder, root)
    (folder / "instruction.md").unlink()
    for text in (b"x" * (1 << 20) + b"x", b"\xff", b" \n"):
        (folder / "instruction.md").write_bytes(text)
        with pytest.raises(ConfigError, match=r"instruction.md (cannot be read|is empty)"):
            read_task("a-task", folder, root)
    (root / "link").symlink_to(tmp_path)
    (root / "outside").symlink_to(make_task(tmp_path / "elsewhere"))
    with pytest.raises(ConfigError, match="outside is a link to a place outside of"):
        read_task("outside", task_folders(place_of(str(root)))["outside"], root)
    (root / "outside").unlink()
    assert list(task_folders(place_of(str(root)))) == ["a-task"]
    make_task(root, "odd\nname")
    with pytest.raises(ConfigError, match="name that cannot be used"):
        task_folders(place_of(str(root)))
    with pytest.raises(ConfigError, match="has no tasks"):
        task_folders(place_of(str(folder / "tests")))
    make_task(tmp_path, "alone\nodd")
    with pytest.raises(ConfigError, match="name that cannot be used"):
        task_folders(place_of(str(tmp_path / "alone\nodd")))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "long").symlink_to("x" * 300)
    with pytest.raises(ConfigError, match="links/long cannot be read: File name too long"):
        task_folders(place_of(str(tmp_path / "links")))
    with pytest.raises(ConfigError, match="there is no such folder"):
        place_of(str(tmp_path / "none"))


def test_links_within_a_collection_are_refused_if_they_do_not_exist_in_the_container(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "Dockerfile").write_text("FROM x\n")
    folder = make_task(tmp_path, files={"tests/deep/data": "x"})
    (folder / "environment").mkdir()
    (folder / "environment" / "Dockerfile").symlink_to("../../shared/Dockerfile")
    for name, target in {"inside": "deep/data", "container": "/app/x", "missing": "../app/x"}.items():
        (folder / "tests" / name).symlink_to(target)
    before = read_task("a-task", folder, tmp_path).digest
    (tmp_path / "shared" / "Dockerfile").write_text("FROM y\n")
    assert read_task("a-task", folder, tmp_path).digest != before
    (folder / "tests" / "deep" / "link").symlink_to("../../../shared")
    with pytest.raises(UnsupportedTask, match=r"tests/deep/link: links to a place outside of the folder tests"):
        read_task("a-task", folder, tmp_path)
    (folder / "tests" / "test.sh").unlink()
    (folder / "tests" / "test.sh").symlink_to("test.sh")
    with pytest.raises(ConfigError, match=r"a-task cannot be read"):
        read_task("a-task", folder, tmp_path)


def test_more_processors_than_this_computer_has_are_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_task(tmp_path, toml="cpus = 4096\n")
    with caplog.at_level(logging.WARNING, "harness"):
        assert load(folder).machine.cpus is None
    assert "1 of 1 tasks, such as a-task, ask for more processors than" in caplog.text


def test_a_changed_file_of_a_task_changes_the_fingerprint(tmp_path: Path) -> None:
    folder = make_task(tmp_path)
    before = load(folder).fingerprint
    assert load(folder).fingerprint == before
    (folder / "tests" / "test.sh").write_text("exit 1\n")
    assert load(folder).fingerprint != before


def git(folder: Path, *arguments: str) -> str:
    options = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *options, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_tasks_of_a_git_repository_are_those_of_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    origin = tmp_path / "origin"
    make_task(origin / "sub")
    git(origin, "init", "--quiet")
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "one")
    git(origin, "tag", "-am", "first", "v1")
    first = git(origin, "rev-parse", "HEAD")
    make_task(origin / "sub", "another")
    git(origin, "add", "-A")
    git(origin, "commit", "-qm", "two")
    url = f"file://{origin}"
    found = {ref: task_folders(place_of(f"{url}{ref}#sub")) for ref in ("", "@main", "@v1", f"@{first}")}
    assert [list(tasks) for tasks in found.values()] == [["a-task", "another"]] * 2 + [["a-task"]] * 2
    assert load(f"git+{url}@v1#sub").fingerprint["commit"] == first
    git(origin, "rm", "-rq", "sub")
    git(origin, "commit", "-qm", "three")
    with pytest.raises(ConfigError, match=r"has no branch or tag '.*'; a commit is named by all of its digits"):
        place_of(f"{url}@{first[:8]}")
    origin.rename(tmp_path / "gone")
    with pytest.raises(EnvironmentLoadError, match="does not appear to be a git repository"):
        place_of(url)
    assert list(task_folders(place_of(f"{url}@{first}#sub"))) == ["a-task"]  # from the cache
    for wrong, error in {
        f"{url}@main": EnvironmentLoadError, "git+https://[x": ConfigError, "git+ext::sh -c x": ConfigError,
        "git+https://a:b@example.org/x": ConfigError,
        f"{url}@{first}#../..": ConfigError, f"{url}@{first}#none": ConfigError, f"{url}@--upload-pack=x": ConfigError,
    }.items():  # fmt: skip
        with pytest.raises(error):
            place_of(wrong)
    assert split_url("git+ssh://git@example.org/a/b.git@v1#x/y") == ("ssh://git@example.org/a/b.git", "v1", "x/y")


def test_a_clone_does_not_depend_on_the_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    origin, other = tmp_path / "origin", tmp_path / "other"
    make_task(origin, files={"tests/data": "a\r\nb\n"})
    for folder in (origin, other):
        folder.mkdir(exist_ok=True)
        git(folder, "init", "--quiet")
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", "one", "--allow-empty")
    (tmp_path / "settings").write_text("[core]\nautocrlf = true\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "settings"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    index = (other / ".git" / "index").read_bytes()
    before = os.umask(0o077)
    try:
        place = place_of(f"file://{origin}")
    finally:
        os.umask(before)
    tests = task_folders(place)["a-task"] / "tests"
    assert (tests / "data").read_bytes() == b"a\r\nb\n"
    assert (tests / "test.sh").read_bytes() == (origin / "a-task" / "tests" / "test.sh").read_bytes()
    assert tests.stat().st_mode & 0o777 == 0o755 and (tests / "data").stat().st_mode & 0o777 == 0o644
    assert (other / ".git" / "index").read_bytes() == index and os.listdir(other) == [".git"]


ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"path": 3}, "path must be a text, not 3"),
    ({"path": ""}, "path must be a text, not ''"),
    ({"path": "~no-such-user/x"}, "there is no such folder"),
    ({"logs": "/dev/null/logs"}, "logs='/dev/null/logs': the folder cannot be made"),
    ({"build": "yes"}, "build must be true or false"),
    ({"sandbox": "bubblewrap"}, "sandbox='bubblewrap': tasks need a container"),
    ({"images": {"a": 1}}, "images must be a table of names of images"),
    ({"images": ["a"]}, "images must be a table of names of images"),
    ({"images": {"a": "--volume=/:/x"}}, "'--volume=/:/x' is not the name of an image"),
    ({"tasks": 3}, "tasks must be a list of texts, not 3"),
    ({"pass_env": [3]}, "pass_env must be a list of texts"),
    ({"command_timeout": 0}, "command_timeout must be a number above 0"),
    ({"containers": 0}, "containers must be a whole number above 0"),
]


@for_each_row(("arguments", "words"), ARGUMENTS)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], words: str) -> None:
    need_podman()
    with pytest.raises(ConfigError) as raised:
        load_environment(**arguments)
    assert words in str(raised.value)
    assert TASK  # the tasks of these tests use a mapped image
